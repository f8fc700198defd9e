"""Checkout: which files of a directory are surveyed, and how their bytes become text.

Everything is read through a session's reader. What ``.gitignore`` files leave out is left out, and so are
version control, caches and installed packages, whatever a ``.gitignore`` says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from sessiontree import ExecutionError, ToolError
from sessiontree.survey.source.census import Place
from sessiontree.survey.source.ignore_rules import IgnoreRules

REPORT_NAME = "SURVEY.md"
"""The usual place of the survey's own report; it is never surveyed."""
MAX_FILE_BYTES = 2_000_000
"""Most bytes read of one file; of a larger one only its beginning is surveyed."""
_MAX_IGNORE_BYTES = 256_000
_SNIFFED_BYTES = 8_192

_NEVER_ENTERED = """
    .bundle .cache .eggs .git .gradle .hg .hypothesis .ipynb_checkpoints .jj .mypy_cache .next .nox .nuxt
    .pnpm-store .pytest_cache .ruff_cache .svelte-kit .svn .terraform .tox .turbo .venv .yarn CVS
    __pycache__ bower_components htmlcov node_modules
"""
_NEVER = frozenset(_NEVER_ENTERED.split())
"""Names of directories that hold no source of this checkout."""
_MARKS = frozenset(("CACHEDIR.TAG", "pyvenv.cfg"))
"""Files that say of the directory around them that it is a cache or an environment."""


class ListedEntry(Protocol):
    """One name in a directory."""

    @property
    def path(self) -> str:
        """Relative to the root, ``/`` between parts."""

    @property
    def type(self) -> str:
        """``file``, ``directory``, ``link`` or ``other``."""

    @property
    def size(self) -> int:
        """Bytes."""


class FileReader(Protocol):
    """What a survey needs of a session's reader; both methods block and raise ToolError."""

    def list(self, path: str) -> Sequence[ListedEntry]:
        """Return the entries of a directory; links are listed and not followed."""

    def open(self, path: str) -> BinaryIO:
        """Open a regular file."""


@dataclass(frozen=True, slots=True)
class SurveyFile:
    """One file to survey."""

    path: str
    """Relative to the root, ``/`` between parts."""
    size: int
    """Bytes."""


@dataclass(slots=True)
class Checkout:
    """What a directory holds."""

    files: list[SurveyFile] = field(default_factory=list)
    """Regular files to survey, by path."""
    ignored: int = 0
    """Files, directories and links that are left out; what is inside them is not counted."""
    problems: list[Place] = field(default_factory=list)
    """What cannot be surveyed, and why, by path."""

    def report(self, path: str, text: str) -> None:
        """Keep why something cannot be surveyed."""
        self.problems.append(Place(path=to_printable_path(path), text=to_printable_path(text)))

    def keep(self, entry: ListedEntry) -> None:
        """Keep a file, or why it cannot be surveyed."""
        if entry.type == "other":
            self.report(entry.path, "not a regular file")
        elif to_printable_path(entry.path) != entry.path:
            self.report(entry.path, "its name is not UTF-8")
        else:
            self.files.append(SurveyFile(entry.path, entry.size))


def to_printable_path(path: str) -> str:
    r"""Return a path that has a UTF-8 form: bytes of a name that have none appear as ``\udcXX``."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def walk(
    reader: FileReader,
    folder: str | None = None,
    *,
    leave_out: Collection[str] = (),
    stop: Callable[[], bool] = lambda: False,
) -> Checkout:
    """Return the files beneath the root.

    Args:
        reader: Lists directories and opens ``.gitignore`` files.
        folder: A top folder: only its files; ``.``: only those in the root itself; None = all.
        leave_out: Paths that are left out.
        stop: Asked before each directory whether to stop.

    Raises:
        ToolError: the root cannot be listed, or ``stop`` returned True.

    Contract: blocks; call it from a thread. Links are not followed, so no loop of them is entered.
    """
    found = Checkout()
    waiting: list[tuple[str, tuple[IgnoreRules, ...]]] = [(".", ())]
    while waiting:
        if stop():
            raise ExecutionError("can't list all files: the call was stopped; call it again")
        directory, rules = waiting.pop()
        entries = _list_entries(reader, directory, found)
        if any(_name_checkout(entry) == ".gitignore" for entry in entries):
            rules = (*rules, *_read_rules(reader, directory, found))
        for entry in entries:
            top = entry.path if entry.type == "directory" else "."
            if entry.path in leave_out or (directory == "." and folder not in (None, top)):
                continue
            if _is_left_out(entry, rules, found):
                found.ignored += 1
            elif entry.type == "directory":
                waiting.append((entry.path, rules))
            else:
                found.keep(entry)
    found.files.sort(key=lambda file: file.path)
    found.problems.sort(key=lambda one: (one.path, one.text))
    return found


def _list_entries(reader: FileReader, directory: str, found: Checkout) -> Sequence[ListedEntry]:
    """Return what a directory lists; nothing for one that is a cache, or can't be listed."""
    try:
        entries = reader.list(directory)
    except (ToolError, OSError) as error:
        if directory == ".":
            raise
        found.report(directory, f"can't be listed: {error}")
        return ()
    # Not for the root: whoever surveys a directory that is marked as a cache means it.
    if directory != "." and any(_name_checkout(entry) in _MARKS for entry in entries):
        found.ignored += 1
        return ()
    return entries


def _name_checkout(entry: ListedEntry) -> str:
    return entry.path.rpartition("/")[2]


def _is_left_out(entry: ListedEntry, rules: Sequence[IgnoreRules], found: Checkout) -> bool:
    """Return whether an entry is left out: the deepest file with a pattern for it decides, as in Git."""
    name, path = _name_checkout(entry), entry.path
    if entry.type == "link" or path == REPORT_NAME:
        return True
    if entry.type == "directory":
        if name in _NEVER or name.endswith(".egg-info"):
            return True
        path += "/"
    # A rule that takes too long is reported and passed over, so that one file of patterns can't stop a
    # survey.
    for one in reversed(rules):
        try:
            verdict = one.judge(path)
        except ExecutionError as error:
            found.report(_build_rules_path(one.directory), f"its patterns can't be used: {error}")
            continue
        if verdict is not None:
            return verdict
    return False


def _read_rules(reader: FileReader, directory: str, found: Checkout) -> list[IgnoreRules]:
    inside = "" if directory == "." else directory
    path = _build_rules_path(inside)
    try:
        data, total = read_bytes(reader, path, _MAX_IGNORE_BYTES)
    except (ToolError, OSError) as error:
        found.report(path, f"its patterns can't be used: {error}")
        return []
    if total > len(data):
        found.report(path, f"only the first {len(data):,} of {total:,} bytes of its patterns are used")
        # Up to the last whole line: half a pattern would leave out other files than the whole one.
        data = data[: data.rfind(b"\n") + 1]
    return [IgnoreRules(inside, data)]


def _build_rules_path(directory: str) -> str:
    return f"{directory}/.gitignore" if directory else ".gitignore"


def get_top_folder(path: str) -> str:
    """Return the top folder of a path, ``.`` for a file in the root itself."""
    folder, slash, _ = path.partition("/")
    return folder if slash else "."


def read_bytes(reader: FileReader, path: str, max_bytes: int = MAX_FILE_BYTES) -> tuple[bytes, int]:
    """Return the first bytes of a file, and how many it has in all. Blocks.

    Raises:
        ToolError, OSError: it cannot be read.
    """
    with reader.open(path) as file:
        total = file.seek(0, os.SEEK_END)
        file.seek(0)
        # The size by seeking and not by the listing: the file may have grown since it was listed.
        return file.read(min(max_bytes, total)), total


def decode_text(data: bytes) -> tuple[str, str] | None:
    r"""Return a file's text, and what was wrong with it; None for bytes that are not text.

    UTF-8 and, with a byte order mark, UTF-16 are read; of anything else without NUL bytes each byte that is
    not UTF-8 becomes a replacement character. Lines end with ``\n``, ``\r\n`` or ``\r``.
    """
    is_utf_16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not is_utf_16 and b"\0" in data[:_SNIFFED_BYTES]:
        return None
    problem = ""
    try:
        text = data.decode("utf-16" if is_utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        text = data.decode("utf-8-sig", "replace")
        if is_utf_16 or text.count("\ufffd") > len(text) // 3:
            return None
        if error.start < len(data) - 3:  # a file that was cut may end within a letter
            problem = f"byte {error.start:,} is not UTF-8"
    return text.replace("\r\n", "\n").replace("\r", "\n"), problem
