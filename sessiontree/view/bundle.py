"""The modules of the page joined into one, for places that load one file: a notebook's cell, a saved page.

It only works for modules that keep to a simple form, which a test of the page proves: imports and exports
stand at the beginnings of lines, and no two modules declare the same name at their top level.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)


@cache
def read_module(name: str) -> str:
    """Return the text of a module of the page.

    Raises:
        FileNotFoundError: the page has no such module.
    """
    return (files("sessiontree.view") / "page" / name).read_text("utf-8")


@cache
def join_modules(*entries: str) -> str:
    """Return modules and all that they import as one module; each comes after those that it needs.

    Args:
        entries: Names of the modules that are wanted.
    """
    order: dict[str, None] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in order or name in above:
            return
        for needed in _IMPORT.findall(read_module(name)):
            add(needed, (*above, name))
        order[name] = None

    for entry in entries:
        add(entry, ())
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", read_module(name))) for name in order)
