"""The files of a page: what a file refers to, and where a reference leads in the workspace.

Not here: how a page looks, or publishing it (deploy_preview.py).
"""

from __future__ import annotations

import posixpath
import re
from itertools import islice
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from sessiontree.contracts.errors import ToolError
from sessiontree.contracts.handles.ports import Reader
from sessiontree.contracts.tools.thread_calls import Stop
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree_tools.web.html_process import ask_program

PROGRAM = Path(__file__).resolve().with_name("page_outline.py")
OUTLINE_S = 10.0
"""Longest look at one file."""
CSS_REFERENCE = re.compile(r"url\(\s*[\"']?([^\"')\s]{1,300})|@import\s+[\"']([^\"']{1,300})", re.IGNORECASE)
MAX_REFERENCES = 400

Kind: TypeAlias = Literal["file", "anchor", "external", "rooted", "outside", "other"]
"""Where a reference leads: to a file of the workspace, to a place in the page itself, to another site, to the
root of a server, out of the workspace, or to nothing that is loaded (``data:``, ``mailto:`` and others)."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference in a file."""

    url: str
    element: str
    """The element, or ``css``."""
    line: int

    def target_from(self, page: str) -> tuple[Kind, str, str]:
        """Return where it leads from a page: kind, path in the workspace (of a file), and fragment.

        Args:
            page: Path of the file with the reference, relative to the workspace.
        """
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return "other", "", ""
        fragment = unquote(parts.fragment)
        if parts.scheme in {"http", "https"} or (parts.netloc and not parts.scheme):
            return "external", "", fragment
        if parts.scheme:
            return "other", "", ""
        if not parts.path:
            return "anchor", page, fragment
        if parts.path.startswith("/"):
            return "rooted", "", fragment
        path = unquote(parts.path)
        found = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if found.startswith("..") or "\0" in found:
            return "outside", "", fragment
        return "file", f"{found}/index.html" if path.endswith("/") else found, fragment


@dataclass(frozen=True, slots=True)
class FileOutline:
    """What a file of a page says."""

    references: tuple[Reference, ...]
    """In the file's order."""
    problems: tuple[str, ...] = ()
    """What is wrong with the markup, with line numbers."""
    ids: frozenset[str] = frozenset()
    """Names of places that a fragment can lead to."""


def outline_file(path: str, text: str, stop: Stop) -> FileOutline:
    """Return what a file refers to; HTML and CSS are read, other files refer to nothing.

    Blocks: call it from a thread.

    Raises:
        ExecutionError: its markup takes too long or too much memory, or the work was stopped.
    """
    ending = path.rpartition(".")[2].lower()
    if ending == "css":
        found = islice(CSS_REFERENCE.finditer(text), MAX_REFERENCES)
        urls = [(each[1] or each[2], each.start()) for each in found]
        return FileOutline(tuple(Reference(url, "css", text.count("\n", 0, at) + 1) for url, at in urls))
    if ending not in {"html", "htm"}:
        return FileOutline(())
    answer = ask_program(PROGRAM, {}, text, stop, OUTLINE_S)
    problems = [f"line {each['line']}: {each['text']}" for each in answer["problems"]]
    if not answer["has_doctype"]:
        problems.insert(0, "line 1: <!doctype html> is missing")
    references = (Reference(each["url"], each["element"], each["line"]) for each in answer["references"])
    return FileOutline(tuple(references), tuple(problems), frozenset(answer["ids"]))


def is_file(reader: Reader, path: str) -> bool:
    """Whether a path leads to a file of the workspace."""
    try:
        return reader.stat(path).type == "file"
    except ToolError:
        return False
