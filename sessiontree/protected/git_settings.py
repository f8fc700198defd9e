"""The settings of git that name files with programs: the directories of hooks, and included settings.

Only the needed part of the format is read: sections, keys and values on one line or several. A file that
can't be read or parsed yields nothing. Source: git-config(1), "CONFIGURATION FILE".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1 << 20
MAX_FILES: Final = 64
_SECTION: Final = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_KEY: Final = re.compile(r"([A-Za-z][\w-]*)\s*(?:=\s*(.*))?$", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b"}


def hook_directories(git_directory: str, worktree: str) -> set[str]:
    """Return the configured hook directories of a repository, and the settings files that it includes.

    Args:
        git_directory: The repository's git directory.
        worktree: The base of relative paths.
    """
    found: set[str] = set()
    places = {git_directory, find_common_directory(git_directory)}
    own = [os.path.join(place, name) for place in places for name in ("config", "config.worktree")]  # noqa: PTH118 - no path is touched
    left = [*_list_global_configs(), *own]
    for file in left:  # grows
        for name, value in _read_settings(file):
            if name == "core.hookspath" and value:
                found.add(_place(worktree, value))
            elif name in {"include.path", "includeif.path"} and value:
                place = _place(os.path.dirname(file), value)  # noqa: PTH120 - as above
                found.add(place)
                if place not in left and len(left) < MAX_FILES:
                    left.append(place)
    return found


def find_common_directory(git_directory: str) -> str:
    """Return the directory of a repository's settings; for an added worktree this is another directory."""
    try:
        text = Path(git_directory, "commondir").read_text("utf-8", "surrogateescape").strip()
    except OSError:
        return git_directory
    return _place(git_directory, text) if text else git_directory


def _list_global_configs() -> Iterator[str]:
    home = os.path.expanduser("~")  # noqa: PTH111 - as git does
    yield "/etc/gitconfig"
    yield os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git", "config")  # noqa: PTH118 - as above
    yield os.path.join(home, ".gitconfig")  # noqa: PTH118 - as above


def _place(folder: str, value: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(value)))  # noqa: PTH111, PTH118 - as git does


def _read_settings(file: str) -> tuple[tuple[str, str], ...]:
    try:
        status = os.stat(file)  # noqa: PTH116 - one call
    except (OSError, ValueError):
        return ()
    # With the time of the last change, which nobody can set: a write that puts the old times back is seen.
    return _read(file, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=256)
def _read(file: str, *version: int) -> tuple[tuple[str, str], ...]:
    """Return ``section.key`` and value of each line; ``version`` distinguishes contents of the file."""
    try:
        with Path(file).open("rb") as stream:
            text = stream.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    found: list[tuple[str, str]] = []
    section = ""
    for line in _join_lines(text):
        rest = line.strip()
        # Git also reads a key on the same line, behind the header of its section.
        while (opened := _SECTION.match(rest)) is not None:
            section = opened[1].lower().partition(".")[0]
            rest = rest[opened.end() :].strip()
        key = _KEY.match(rest) if rest and rest[0] not in "#;" else None
        if key is not None:
            found.append((f"{section}.{key[1].lower()}", _unquote(key[2] or "")))
    return tuple(found)


def _join_lines(text: str) -> Iterator[str]:
    """Yield logical lines: a line that ends in a backslash is joined with the next."""
    kept = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        kept += line
        if kept.endswith("\\") and not kept.endswith("\\\\"):
            kept = kept[:-1]
            continue
        yield kept
        kept = ""
    if kept:
        yield kept


def _unquote(text: str) -> str:
    """Return a value without quotes, escapes and comment."""
    out: list[str] = []
    end = 0
    quoted = escaped = False
    for char in text:
        if escaped:
            out.append(_ESCAPES.get(char, char))
            escaped = False
        elif char == "\\":
            escaped = True
            continue
        elif char == '"':
            quoted = not quoted
        elif char in "#;" and not quoted:
            break
        else:
            out.append(char)
        if quoted or not char.isspace():
            end = len(out)
    return "".join(out[:end]).strip("\n")
