"""Packages of providers' libraries that only list names: a module is loaded when its name is asked for.

``openai.types`` names 700 classes of 400 modules, and a question needs a few of them. To load all takes a
quarter of the time before a process's first question.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

_LISTS: Final = ("openai.types", "anthropic.types")
"""The packages; those beneath them are treated alike."""


@contextmanager
def load_exports_late() -> Iterator[None]:
    """Have these packages, if they are imported in this context, load each module when it is needed."""
    finder = _ListFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _ListFinder(MetaPathFinder):
    """Finds these packages as Python does, with another way to load them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(_LISTS):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, InspectLoader) and spec.submodule_search_locations:
            spec.loader = _ListLoader(spec.loader)
        return spec


class _ListLoader(Loader):
    """Loads a package whose file only imports names from its own modules; any other is loaded as usual."""

    def __init__(self, usual: InspectLoader) -> None:
        self._usual = usual

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return None: Python makes the module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        homes = _read_homes(self._usual.get_source(module.__name__) or "")
        if homes is None:
            self._usual.exec_module(module)
            return
        vars(module)["__all__"] = list(homes)  # for an import of all names, which asks the module for each
        vars(module)["__getattr__"] = _make_lookup(module, homes)


def _read_homes(source: str) -> Mapping[str, tuple[str, str]] | None:
    """Return where each name of a package is defined, as module and name; None = the file does more."""
    homes: dict[str, tuple[str, str]] = {}
    for line in ast.parse(source).body:
        if not isinstance(line, ast.ImportFrom):
            return None
        if line.module == "__future__":
            continue
        if line.level != 1:
            return None
        for name in line.names:
            homes[name.asname or name.name] = line.module or "", name.name
    return homes


def _make_lookup(package: ModuleType, homes: Mapping[str, tuple[str, str]]) -> Any:
    """Return the ``__getattr__`` of a package."""

    def find(name: str) -> Any:
        module, defined = homes.get(name, ("", name))
        place = f"{package.__name__}.{module or defined}"
        if defined.startswith("__"):
            raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")
        try:
            found: Any = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name != place:
                raise
            raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}") from None
        vars(package)[name] = value = getattr(found, defined) if module else found
        return value

    return find
