"""What the words of a command name now: its starting directory, and files of the workspace.

A person who allows ``python a.py`` allows the content that the file has then. So an approval is bound to the
identity and the times of the files that the call names; nothing is opened. Words are looked up in every
directory that another word names, because the command may change to it first.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.policy.commands.named_words import collect_words

MAX_LOOKED: Final = 20_000
"""Maximum number of files and names that are examined for one command."""
MAX_FILES: Final = 100_000
"""Maximum number of files that one approval is bound to."""
_MAX_PLACES: Final = 64
_MAX_PATTERN: Final = 512
_UNFINISHED: Final = ".sessiontree-unfinished-"
_BRACKETS: Final = re.compile(r"\[[!^]?\]?[^\[\]\\]*\]")
"""A list of characters that holds neither classes nor escapes."""
_LISTED: Final = re.compile(r"\[(?:[A-Za-z0-9]+|0-9)\]")
"""A list that means the same in every locale."""


def fingerprint_named_files(
    workspace: str, arguments: Mapping[str, JsonValue], member: str, hidden: Sequence[Path] = ()
) -> str:
    """Return a text that changes when something that a command names is changed or replaced.

    It covers the directory where the command starts, and every directory and regular file in the workspace
    that a word names, links followed; it does not cover files that those name in turn. If the words can't be
    known in advance, it covers every file of the workspace. It takes about 2 µs a word, or 5 µs a file.

    Args:
        workspace: Absolute.
        arguments: The arguments of the call.
        member: The argument that is the command.
        hidden: Places that no command may see, although they may be in the workspace; absolute.

    Raises:
        ExecutionError: the command may run any file, and the workspace has too many to be bound to them.
    """
    command, workdir = arguments.get(member), arguments.get("workdir", ".")
    if not isinstance(command, str) or not isinstance(workdir, str):
        return ""
    # Compared below with paths whose links are resolved; an unresolved one would put every file outside.
    workspace = os.path.realpath(workspace)
    start = os.path.normpath(os.path.join(workspace, workdir))  # noqa: PTH118 - no path is touched
    given = arguments.get("env")
    variables = given.items() if isinstance(given, Mapping) else ()
    named = collect_words(command, {name: value for name, value in variables if isinstance(value, str)})
    found = None if named.is_open else read_named_files(workspace, start, named.words)
    if found is None:
        return _fingerprint_workspace(workspace, start, frozenset(os.path.realpath(path) for path in hidden))
    found = {"": _identify_directory(start), **found}
    return dump_json({path: known for path, known in sorted(found.items()) if known is not None})


def read_named_files(workspace: str, start: str, words: frozenset[str]) -> dict[str, JsonValue] | None:
    """Return what is now at each place of a workspace that words name; None if they name too many.

    Args:
        workspace: Absolute, without links.
        start: The directory where the command starts, absolute.
        words: Names and patterns.
    """
    look = _Look(workspace, start)
    return look.found if look.at(words) else None


@dataclass(slots=True)
class _Look:
    """Looks words up in a workspace."""

    workspace: str
    start: str
    found: dict[str, JsonValue] = field(default_factory=dict)
    met: set[tuple[int, int]] = field(default_factory=set)
    """Directories by identity, because a link may lead back to one of them."""
    left: int = MAX_LOOKED

    def at(self, words: frozenset[str]) -> bool:
        """Look up each word in every directory that a word names; return whether that was possible."""
        patterns = [word for word in words if not _has_no_magic(word)]
        if any(len(pattern) > _MAX_PATTERN for pattern in patterns):
            return False
        places = [self.start]
        for place in places:  # grows during the loop
            if len(places) > _MAX_PLACES:
                return False
            paths = [_join_path(place, word) for word in words]
            for pattern in patterns:
                paths += self._find_matches(place, pattern)
            self.left -= len(paths)
            if self.left < 0:
                return False
            places += [path for path in paths if self._keep(path)]
        return True

    def _keep(self, path: str) -> bool:
        """Record what is at a path of the workspace; return whether it is a directory not seen before."""
        # Several words and places lead to one path; a directory must not become a place to search twice.
        if path in self.found:
            return False
        known = _read_status(path)
        if known is None or not self._is_inside(path):
            return False
        if stat.S_ISDIR(known.st_mode):
            self.found[path] = [known.st_dev, known.st_ino]
            is_new = (known.st_dev, known.st_ino) not in self.met
            self.met.add((known.st_dev, known.st_ino))
            return is_new
        if stat.S_ISREG(known.st_mode):
            self.found[path] = _describe_file(known)
        return False

    def _is_inside(self, path: str) -> bool:
        # The cheap way first. A path that leads outside by its words may still lead inside by a link, so it
        # is resolved then.
        if Path(os.path.normpath(path)).is_relative_to(self.workspace):
            return True
        return Path(os.path.realpath(path)).is_relative_to(self.workspace)

    def _find_matches(self, place: str, pattern: str) -> list[str]:
        """Return the paths that match a pattern, and perhaps more."""
        found = ["/" if pattern.startswith("/") else place]
        for part in [each for each in pattern.split("/") if each]:
            if self.left < 0:
                return []
            # Bash treats two stars like this only if asked to; assuming it binds the approval to more files,
            # never to fewer.
            if part == "**":
                found = list(dict.fromkeys(inner for each in found for inner in self._walk_below(each)))
            elif _has_no_magic(part):
                found = [_join_path(each, part) for each in found]
            else:
                found = [inner for each in found for inner in self._find_fitting(each, part)]
        return found

    def _find_fitting(self, place: str, part: str) -> Iterator[str]:
        if self._is_inside(place):
            wanted = _widen(part)
            for name in self._list_names(place):
                if wanted.fullmatch(name) and (part.startswith(".") or not name.startswith(".")):
                    yield _join_path(place, name)

    def _walk_below(self, place: str) -> Iterator[str]:
        waiting = [place]
        while waiting:
            each = waiting.pop()
            self.left -= 1
            yield each
            if self._is_inside(each) and not Path(each).is_symlink():
                waiting += [_join_path(each, name) for name in self._list_names(each)]

    def _list_names(self, place: str) -> list[str]:
        try:
            names = os.listdir(place)  # noqa: PTH208 - names alone
        except (OSError, ValueError):
            return []
        self.left -= len(names)
        return names if self.left > 0 else []


def _widen(part: str) -> re.Pattern[str]:
    """Return an expression that matches at least what a shell's pattern does, however it was quoted."""
    rest = _BRACKETS.sub("", part)
    if 0 <= rest.find("[") < rest.rfind("]"):  # a class of characters, or something else
        begin, end = part.index("["), part.rindex("]")
        return re.compile(_translate_part(part[:begin]) + ".*" + _translate_part(part[end + 1 :]), re.DOTALL)
    found, at = [], 0
    for match in _BRACKETS.finditer(part):
        listed = match[0] if _LISTED.fullmatch(match[0]) else "."
        found += [_translate_part(part[at : match.start()]), f"(?:{listed}|{re.escape(match[0])})"]
        at = match.end()
    return re.compile("".join(found) + _translate_part(part[at:]), re.DOTALL)


def _translate_part(part: str) -> str:
    """Return the expression of a pattern without brackets; several stars are one."""
    signs = {"*": ".*", "?": "."}
    return "".join(signs.get(sign, re.escape(sign)) for sign in re.sub(r"\*+", "*", part))


def _has_no_magic(word: str) -> bool:
    return not any(sign in word for sign in "*?[")


def _join_path(place: str, word: str) -> str:
    return os.path.join(place, word)  # noqa: PTH118 - no path is touched


def _fingerprint_workspace(workspace: str, start: str, hidden: frozenset[str]) -> str:
    """Return a text about every file of a workspace."""
    digest = hashlib.blake2b(dump_json(["", _identify_directory(start)]).encode("ascii"))
    waiting = [workspace]
    left = MAX_FILES
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                # Sorted, because a file system lists in any order and the digest must not depend on it; cut,
                # because one directory may have millions of names.
                rows = sorted(islice(entries, left + 1), key=lambda entry: entry.name)
        except OSError:
            continue
        left -= len(rows)
        if left < 0:
            raise ExecutionError(
                "the command may run files that its words do not name, and the workspace "
                f"{workspace!r} holds more than {MAX_FILES:,} files and directories: no approval can be "
                "bound to so many; name the files literally, or start the tree in a smaller directory"
            )
        for entry in rows:
            # Commands can't see the former, and the writer's unfinished files come and go: counting them
            # would withdraw approvals for nothing.
            if entry.path in hidden or entry.name.startswith(_UNFINISHED):
                continue
            known = _read_status(entry.path, follow=False)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif known is not None:
                digest.update(dump_json([entry.path, _describe_file(known)]).encode("ascii"))
    return digest.hexdigest()


def _read_status(path: str, *, follow: bool = True) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow)  # noqa: PTH116 - one call
    except (OSError, ValueError):
        return None


def _identify_directory(path: str) -> JsonValue:
    known = _read_status(path)
    return None if known is None else [known.st_dev, known.st_ino]


def _describe_file(known: os.stat_result) -> JsonValue:
    return [known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns]
