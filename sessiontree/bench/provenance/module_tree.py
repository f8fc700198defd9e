"""The module tree of a suite: its own files and those that they import, without importing anything.

Files of installed distributions are left out: their releases count. So are data files.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Final

import sessiontree
from sessiontree.contracts.values.python_source import parse_python

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_PACKAGE: Final = Path(sessiontree.__file__).parent
_SUITES: Final = _PACKAGE / "bench" / "suites"
_STANDARD: Final = Path(sysconfig.get_path("stdlib"))


class ModuleTree:
    """Files that a suite's code is in, and the distributions that they import.

    Args:
        roots: Files that define the suite's functions.
        folder: The suite's folder: the names of files are relative to it.
    """

    def __init__(self, roots: Iterable[Path], folder: Path) -> None:
        self._folder = folder.absolute()
        self.files: dict[str, Path] = {}
        """By name, such as ``addition.py`` or ``package/tools.py``."""
        self._imported: set[str] = set()
        waiting = [each.absolute() for each in roots]
        seen: set[Path] = set()
        while waiting:
            path = waiting.pop()
            if path in seen or not _is_own(path):
                continue
            seen.add(path)
            self.files[self._name_module(path)] = path
            waiting += self._find_imports(path)

    def list_releases(self) -> dict[str, str]:
        """Return the releases of the installed distributions that the files import, by name."""
        found: dict[str, str] = {}
        own = {name.partition("/")[0].removesuffix(".py") for name in self.files}
        for module in self._imported - own - {"sessiontree"} - sys.stdlib_module_names:
            found |= _find_releases(module)
        return dict(sorted(found.items()))

    def _name_module(self, path: Path) -> str:
        for base in (self._folder, _find_top(path).parent):
            if path.is_relative_to(base):
                return path.relative_to(base).as_posix()
        return path.name

    def _find_imports(self, path: Path) -> Iterator[Path]:
        try:
            tree = parse_python(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            return
        top = _find_top(path)
        bases = [top.parent, path.parent, self._folder]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level:
                place = path.parents[node.level - 1]
                module = (node.module or "").replace(".", "/")
                inner = [place / module, *(place / module / each.name for each in node.names)]
                yield from (file for each in inner for file in _find_files(each))
                continue
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
            else:
                continue
            for name in names:
                self._imported.add(name.partition(".")[0])
                parts = name.split(".")
                for count in range(1, len(parts) + 1):
                    for base in bases:
                        yield from _find_files(base.joinpath(*parts[:count]))


def _find_releases(module: str) -> dict[str, str]:
    """Return the releases of the distributions that have a module; most have the same name as it."""
    try:
        return {module: version(module)}
    except PackageNotFoundError:
        names = _map_distributions().get(module, ())
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@cache
def _map_distributions() -> Mapping[str, Sequence[str]]:
    return packages_distributions()  # it reads the list of files of everything that is installed


def _find_files(place: Path) -> Iterator[Path]:
    for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if file.is_file():
            yield file


def _find_top(path: Path) -> Path:
    """Return the folder of a file's outermost package; of a single file, its own folder's place in it."""
    top = path
    while (top.parent / "__init__.py").is_file():
        top = top.parent
    return top


def _is_own(path: Path) -> bool:
    """Whether a file is the suite's own: not of the standard library, this package, or an installed one."""
    if path.is_relative_to(_PACKAGE):
        return path.is_relative_to(_SUITES)
    return not (_INSTALLED & set(path.parts)) and not path.is_relative_to(_STANDARD)
