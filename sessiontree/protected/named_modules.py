"""The modules that a program's own code names: in import statements, and in texts such as ``"rules:judge"``.

A program may import such a module long after a tree was opened, for example when it spawns a session with an
approver or when a tool first runs. So the places where it would be found are protected from the beginning,
whether a file is there yet or not. Only a name that is written in the code is found, not one that is put
together.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1 << 20
MAX_FILES: Final = 2_000
_NAME: Final = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_REFERENCE: Final = re.compile(rf"[\"']({_NAME}):[^\W\d]\w*[\"']")
_IMPORT: Final = re.compile(rf"^[ \t]*import[ \t]+({_NAME}[^\n#;]*)", re.MULTILINE)
_FROM: Final = re.compile(
    rf"^[ \t]*from[ \t]+(\.*)({_NAME})?[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]*)", re.MULTILINE
)
_CALL: Final = re.compile(rf"(?:import_module|__import__)\(\s*[\"']({_NAME})[\"']")
_WORD: Final = re.compile(r"[^\W\d]\w*")
_LISTED: Final = re.compile(rf"({_NAME})(?:\s+as\s+\w+)?")


def find_named_places(files: Iterable[str], folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files in a program's own directories that would be imported by names in its code.

    Args:
        files: The files of its loaded modules.
        folders: The directories that it imports from.
    """
    return _find_named_places(tuple(files), folders, tuple(_find_typed_code()))


@lru_cache(maxsize=8)
def _find_named_places(
    files: tuple[str, ...], folders: tuple[str, ...], typed: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the places; a program opens many trees, nearly always with the same modules loaded."""
    found: dict[str, None] = {}
    left = list(files)
    seen = set(left)
    names = {name for text in typed for name in _find_names(text)}
    while left or names:
        for name in names:
            for place in _list_places(name, folders):
                found[place] = None
        # The program may import a large project from its own directory, and this runs when a tree is opened.
        if not left or len(seen) > MAX_FILES:
            break
        file = left.pop()
        names = set(_read_names(file))
        more = [place for name in names for place in _list_places(name, folders)]
        left += [place for place in dict.fromkeys(more) if place not in seen and os.path.isfile(place)]  # noqa: PTH113 - one call
        seen.update(more)
    return tuple(found)


def _list_places(name: str, folders: tuple[str, ...]) -> list[str]:
    """Return where a module of this name would be; a name with a slash is that of a place already."""
    top = name.partition(".")[0]
    if name.startswith("/"):
        return [f"{name}.py", f"{name}/__init__.py"]
    if top in sys.stdlib_module_names or _is_from_elsewhere(top, folders):
        return []
    way = name.replace(".", "/")
    return [f"{folder.rstrip('/')}/{way}{end}" for folder in folders for end in (".py", "/__init__.py")]


def _is_from_elsewhere(top: str, folders: tuple[str, ...]) -> bool:
    module = sys.modules.get(top)
    if module is None:
        return False
    # Not `getattr`: a module may compute its attributes, and would run code for that.
    file = vars(module).get("__file__")
    return isinstance(file, str) and not os.path.abspath(file).startswith(  # noqa: PTH100 - resolve would
        tuple(f"{folder.rstrip('/')}/" for folder in folders)
    )


@lru_cache(maxsize=4096)
def _read_names(file: str) -> tuple[str, ...]:
    """Return the names in a file; what a program has loaded does not change when its file does."""
    if not file.endswith(".py"):
        return ()
    try:
        with Path(file).open("rb") as stream:
            text = stream.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(_find_names(text, os.path.dirname(os.path.abspath(file))))  # noqa: PTH100, PTH120 - as above


def _find_names(text: str, package: str = "") -> Iterator[str]:
    """Yield the modules that code names; relative ones as places, without a suffix."""
    for pattern in (_REFERENCE, _CALL):
        yield from (match[1] for match in pattern.finditer(text))
    for match in _IMPORT.finditer(text):
        yield from (each[1] for each in _LISTED.finditer(match[1]))
    for match in _FROM.finditer(text):
        dots, base, listed = len(match[1]), match[2] or "", match[3]
        if dots and not package:
            continue
        above = package
        for _ in range(dots - 1):
            above = os.path.dirname(above)  # noqa: PTH120 - no path is touched
        way = "/".join(part for part in (above, base.replace(".", "/")) if part) if dots else base
        if base:
            yield way
        joint = "/" if dots else "."
        yield from (f"{way}{joint}{word}" for word in _WORD.findall(listed) if word != "as")


def _find_typed_code() -> Iterator[str]:
    """Yield the code of the program that is in no file: of ``-c``, and of cells."""
    if "-c" in sys.orig_argv[1:-1]:
        yield sys.orig_argv[sys.orig_argv.index("-c") + 1]
    cells = vars(sys.modules["__main__"]).get("In")
    if isinstance(cells, list):
        yield from (cell for cell in cells if isinstance(cell, str))
