"""What a command's words stand for right now: where it starts, and which files of the workspace it names.

A person who allows ``python a.py`` allows what that file holds at that moment. So a call that was asked about
is bound to the identity and the times of what it names; nothing is opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sessiontree.contracts.jsonable import JsonValue, dump_json
from sessiontree.policy.commands.shell_text import calls_of

_BETWEEN: Final = str.maketrans(dict.fromkeys("'\"|;&<>()`$=\n\t\\{},", " "))
"""What may stand between names, whatever it means there."""


def named_files(workspace: str, arguments: Mapping[str, JsonValue], member: str) -> str:
    """Return a text that changes when what a command names is changed or swapped for something else.

    It is about the directory the command starts in and every regular file beneath the workspace that a word
    of it names, links followed; not about files that those name in turn. Some 2 µs a word.

    Args:
        workspace: Absolute, without links.
        arguments: The call's.
        member: Which of them is the command.
    """
    command, workdir = arguments.get(member), arguments.get("workdir", ".")
    if not isinstance(command, str) or not isinstance(workdir, str):
        return ""
    start = os.path.normpath(os.path.join(workspace, workdir))  # noqa: PTH118 - no path is touched
    found: dict[str, JsonValue] = {"": _identity(start, is_file=False)}
    for word in _words(command):
        path = os.path.normpath(os.path.join(start, word))  # noqa: PTH118 - as above
        if word not in found and Path(path).is_relative_to(workspace):
            found[word] = _identity(path, is_file=True)
    return dump_json({word: known for word, known in sorted(found.items()) if known is not None})


def _words(command: str) -> Iterator[str]:
    yield from command.translate(_BETWEEN).split()
    try:
        for words in calls_of(command):
            yield from (word.text for word in words)
    except ValueError:
        return  # what can't be read has the words that can be told apart


def _identity(path: str, *, is_file: bool) -> JsonValue:
    try:
        found = os.stat(path)  # noqa: PTH116 - one call
    except (OSError, ValueError):
        return None
    if not is_file:
        return [found.st_dev, found.st_ino]
    if not stat.S_ISREG(found.st_mode):
        return None
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
