"""Markdown files with front matter, as an owner writes them for agents and skills.

The first line is ``---``; YAML follows up to the next line ``---``; the rest is the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from sessiontree.api.agents.owned_files import explain_error, find_fault, open_text
from sessiontree.contracts.settings.settings import describe_faults
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_BYTES: Final = 256 * 1024
_FENCE: Final = "---"


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file that can't be used, and the reason."""

    path: Path
    reason: str
    line: int | None = None
    """Where, from 1; None = the file as a whole."""

    def __str__(self) -> str:
        """Return ``path:line: reason``."""
        place = str(self.path) if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.reason}"


class Malformed(Exception):
    """A file with front matter is not valid."""

    def __init__(self, refused: RefusedFile) -> None:
        super().__init__(str(refused))
        self.refused = refused


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A file's members and its body."""

    path: Path
    members: Mapping[str, Any]
    lines: Mapping[str, int]
    """Member to its line in the file, from 1."""
    body: str
    """The text below the front matter, without blank lines at its ends."""

    def build_error(self, reason: str, member: str = "") -> Malformed:
        """Return the error about one member; empty = about the whole file."""
        return Malformed(RefusedFile(self.path, reason, self.lines.get(member)))

    def text(self, member: str, default: str | None = None) -> str:
        """Return a member that must be text with something in it.

        Raises:
            Malformed: it is missing and has no default, or is not text.
        """
        value = self.members.get(member, default)
        if value is None:
            raise Malformed(RefusedFile(self.path, f"{member} is missing; write `{member}: …`", 1))
        if not isinstance(value, str) or not value.strip():
            raise self.build_error(f"{member} must be text with something in it, not {value!r}", member)
        return " ".join(value.split())

    def faults(self, error: ValidationError) -> Malformed:
        """Return the error about the first member of these settings that is not valid."""
        place = [str(part) for part in error.errors(include_url=False)[0]["loc"]]
        member = next((part for part in place if part in self.lines), "")
        return self.build_error(describe_faults(error).replace("config.", ""), member)


def list_entries(folder: Path) -> tuple[list[Path], list[RefusedFile]]:
    """Return what is in a folder, sorted, or why it can't be listed; a missing folder is empty."""
    try:
        return sorted(folder.iterdir()), []
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [RefusedFile(folder, f"it can't be listed: {error.strerror}")]


def read_front_matter(path: Path) -> FrontMatter:
    """Return the parts of a file.

    Raises:
        Malformed: it can't be read, is too long, others may write it, or it has no valid front matter.
    """
    lines = read_text(path).splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        raise Malformed(RefusedFile(path, "it has no front matter; its first line must be ---", 1))
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise Malformed(RefusedFile(path, "its front matter has no end; close it by a line ---", 1))
    members, places = parse_members(path, "\n".join(lines[1:end]), 2)
    return FrontMatter(path, members, places, "\n".join(lines[end + 1 :]).strip())


def read_text(path: Path) -> str:
    """Return the text of an owner's file.

    Raises:
        Malformed: it can't be read, is too long, is not text, or others may write it.
    """
    try:
        text, status = open_text(path, follow=True, max_bytes=MAX_BYTES)
    except (OSError, ValueError) as error:
        raise Malformed(RefusedFile(path, f"it can't be read: {explain_error(error)}")) from error
    fault = find_fault(path, status)
    if fault:
        raise Malformed(RefusedFile(path, f"it {fault}"))
    if "\0" in text:
        raise Malformed(RefusedFile(path, "it is not text: it holds a null character"))
    return text


def parse_members(path: Path, text: str, first: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the members of YAML text and their lines in the file, where the text begins at line ``first``.

    Raises:
        Malformed: it is not YAML, or holds no members.
    """
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2026-02-30
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error) or type(error).__name__
        line = None if mark is None else mark.line + first
        raise Malformed(RefusedFile(path, f"its front matter is not YAML: {problem}", line)) from error
    if not isinstance(node, yaml.MappingNode) or not isinstance(value, dict):
        raise Malformed(RefusedFile(path, "its front matter must hold members, such as `name: …`", first))
    lines: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + first
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            raise Malformed(RefusedFile(path, "a member's name must be text", line))
        if key.value in lines:
            raise Malformed(RefusedFile(path, f"{key.value} is given twice", line))
        lines[key.value] = line
    return value, lines
