"""Manifests: what a project says of itself in its manifests: name, purpose, starts, builds, dependencies.

Manifests that no library reads are read by the patterns in ``manifests.toml``.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import resources
from itertools import chain
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

MAX_LISTED = 60
_MAX_TEXT_CHARS = 400
_MAX_README_CHARS = 60_000
"""What a project is for is said at the head of its README."""

ManifestReader: TypeAlias = Callable[[str], dict[str, Any]]
"""Takes a manifest's text; returns members of :class:`Project`, lists as anything that can be iterated."""


class Project(BaseModel):
    """What one manifest says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    """The manifest's own path."""
    name: str = ""
    about: str = ""
    """What it is for, in its own words."""
    starts: tuple[str, ...] = ()
    """Commands and programs that it installs, with what they call where that is known."""
    commands: tuple[str, ...] = ()
    """How it is built, tested and checked, as one types it."""
    needs: tuple[str, ...] = ()
    """What it depends on when it runs."""
    needs_to_develop: tuple[str, ...] = ()
    """What is needed besides for building and testing."""


def parse_manifest(path: str, text: str) -> Project | None:
    """Return what a manifest says; None for a file that is not a manifest, or not a readable one.

    Args:
        path: Relative to the root.
        text: Its text, or the beginning of it.
    """
    name = path.rpartition("/")[2].lower()
    read = _READERS.get("gemfile" if name.endswith(".gemspec") else name.removesuffix(".kts"))
    if _IS_WORKFLOW.search(path):
        read = _parse_workflow
    if read is None:
        return None
    try:
        said = read(text)
        members: dict[str, Any] = {key: _shorten(said.pop(key, "")) for key in ("name", "about")}
        members |= {key: _collect_values(values) for key, values in said.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return Project(path=path, **members)


def _collect_values(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(_shorten, values))))[:MAX_LISTED]


def _shorten(value: object) -> str:
    """Return a text on one line, cut; of a reference to another manifest nothing."""
    line = " ".join(value.split()) if isinstance(value, str) else ""
    return line if len(line) <= _MAX_TEXT_CHARS else f"{line[: _MAX_TEXT_CHARS - 1]}…"


def _list_keys(value: object) -> list[str]:
    return list(map(str, value)) if isinstance(value, Mapping) else []


def _parse_requirement(text: str) -> str:
    """Return the name in a Python requirement such as ``ray>=2.60``; empty for anything else."""
    found = re.match(r"\s*([A-Za-z0-9][\w.-]*)", text)
    return found[1] if found is not None else ""


def _parse_pyproject(text: str) -> dict[str, Any]:
    data = tomllib.loads(text)
    project, tools = data.get("project", {}), data.get("tool", {})
    poetry = tools.get("poetry", {})
    scripts = {**poetry.get("scripts", {}), **project.get("scripts", {}), **project.get("gui-scripts", {})}
    groups = (*project.get("optional-dependencies", {}).values(), *data.get("dependency-groups", {}).values())
    commands = ["python -m build"] if "build-system" in data else []
    known = (("pytest", "pytest"), ("tox", "tox"), ("ruff", "ruff check ."), ("mypy", "mypy"))
    return {
        "name": project.get("name") or poetry.get("name"),
        "about": project.get("description") or poetry.get("description"),
        "starts": [f"{name} = {target}" for name, target in scripts.items()],
        "commands": [*commands, *(command for tool, command in known if tool in tools)],
        "needs": map(
            _parse_requirement, [*project.get("dependencies", ()), *_list_keys(poetry.get("dependencies"))]
        ),
        "needs_to_develop": [
            _parse_requirement(one) for group in groups for one in group if isinstance(one, str)
        ],
    }


def _summarize(data: Mapping[str, Any], needs: str, to_develop: str) -> dict[str, Any]:
    """Return a manifest's name, purpose and dependencies; these are keys of the tables that are named."""
    tables = {"needs": needs.split(), "needs_to_develop": to_develop.split()}
    found = {member: chain(*(_list_keys(data.get(one)) for one in names)) for member, names in tables.items()}
    return {"name": data.get("name"), "about": data.get("description"), **found}


def _parse_package_json(text: str) -> dict[str, Any]:
    data = json.loads(text)
    programs = data.get("bin", {})
    if isinstance(programs, str):
        programs = {data.get("name", ""): programs}
    if imported := data.get("module") or data.get("main"):
        programs |= {"import": imported}
    runner = "pnpm" if "pnpm" in str(data.get("packageManager", "")) else "npm"
    starts = [f"{name} = {target}" for name, target in programs.items()]
    commands = [f"{runner} run {name}: {command}" for name, command in data.get("scripts", {}).items()]
    said = _summarize(data, "dependencies peerDependencies", "devDependencies")
    return {**said, "starts": starts, "commands": commands}


def _parse_cargo(text: str) -> dict[str, Any]:
    data = tomllib.loads(text)
    starts = [f"{one.get('name', '')} = {one.get('path', '')}" for one in data.get("bin", ())]
    said = _summarize(data | data.get("package", {}), "dependencies", "dev-dependencies build-dependencies")
    return {**said, "starts": starts, "commands": ["cargo build", "cargo test"]}


def _parse_composer(text: str) -> dict[str, Any]:
    data = json.loads(text)
    commands = [f"composer {name}" for name in ("install", *_list_keys(data.get("scripts")))]
    return {**_summarize(data, "require", "require-dev"), "commands": commands}


def _parse_makefile(text: str) -> dict[str, Any]:
    found = re.findall(r"^([A-Za-z][\w.-]*)[ \t]*:(?!=)[^#\n]*(?:##[ \t]*(.*))?$", text, re.MULTILINE)
    return {"commands": [f"make {name}: {what}" if what else f"make {name}" for name, what in found]}


def _parse_workflow(text: str) -> dict[str, Any]:
    """Return what a workflow of continuous integration runs."""
    lines: list[str] = []
    for block, single in re.findall(
        r"^[ \t]*(?:- )?run:[ \t]*(?:[|>][+-]?[ \t]*\n((?:[ \t]+.*\n?|\n)+)|(.+))", text, re.MULTILINE
    ):
        indent = re.match(r"[ \t]*", block)
        # the block ends with the first line that is indented less than its first one
        kept = re.match(rf"(?:{indent[0]}.*\n?|\s*\n)*", block) if indent is not None else None
        lines += [line.strip() for line in kept[0].splitlines()] if block and kept is not None else [single]
    return {"commands": [line for line in lines if not line.startswith("#")]}


def _match_patterns(text: str, patterns: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the patterns of a manifest's row in the table find."""
    found = {key: re.findall(one, text, re.MULTILINE) for key, one in patterns.items() if key != "commands"}
    texts = {key: next(iter(found.get(key, ())), "") for key in ("name", "about")}
    return {**found, **texts, "commands": patterns.get("commands", ())}


_TABLE = tomllib.loads(resources.files("sessiontree.survey").joinpath("manifests.toml").read_text("utf-8"))
_READERS: dict[str, ManifestReader] = {
    "pyproject.toml": _parse_pyproject,
    "package.json": _parse_package_json,
    "cargo.toml": _parse_cargo,
    "composer.json": _parse_composer,
    "makefile": _parse_makefile,
    "gnumakefile": _parse_makefile,
} | {name: partial(_match_patterns, patterns=row) for name, row in _TABLE.items()}
_IS_WORKFLOW = re.compile(r"^\.github/workflows/[^/]+\.ya?ml$")


def summarize_readme(text: str) -> str:
    """Return the first paragraph of a README that says something in words."""
    text = _remove_comments(text[:_MAX_README_CHARS])
    for paragraph in re.split(r"\n[ \t]*\n", re.sub(r"\A---\n(?s:.*?)\n---\n", "", text)):
        words = _strip_markup(paragraph)
        if len(words.split()) >= 4 and not _is_furniture(paragraph):
            return _shorten(words)
    return ""


def _remove_comments(text: str) -> str:
    """Return a text without its HTML comments; linear, however many are left open."""
    kept: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 2)) >= 0:
        kept.append(text[at:start])
        at = end + len("-->")
    return "".join((*kept, text[at:]))


def _is_furniture(paragraph: str) -> bool:
    """Return whether a paragraph is a heading, badges, a list, a table or markup."""
    lines = [line.strip() for line in paragraph.splitlines() if line.strip()]
    is_underlined = len(lines) > 1 and set(lines[1]) <= set("=-~")
    return is_underlined or lines[0].startswith(("#", "```", "|", "- ", "* ", ".. ", "[![", "![", "=", "<"))


def _strip_markup(text: str) -> str:
    # No part of a link is long: the bounds keep this linear where nothing closes what was opened.
    text = re.sub(r"!\[[^\]]{0,500}\]\([^)]{0,2000}\)|<[^>]{1,2000}>", "", text)
    text = re.sub(r"\[([^\]]{0,500})\](?:\([^)]{0,2000}\)|\[[^\]]{0,500}\])", r"\1", text)
    return " ".join(re.sub(r"[*`_]{1,2}([^*`_\n]{1,500})[*`_]{1,2}", r"\1", text).split())
