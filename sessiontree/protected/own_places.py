"""What this process and its like import from: the environment, editable packages, the program's modules."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.metadata
import operator
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, Final

from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.protected.named_modules import find_named_places

PARTS_OF_A_PREFIX: Final = ("bin", "include", "lib", "lib64", "pyvenv.cfg", "share")
"""The parts of an environment whose directory also holds other things: the project it belongs to."""
SCHEMES: Final = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
LOADED_FIRST: Final = frozenset({"sitecustomize", "usercustomize"})
"""Modules that every Python process imports at its start."""
SUFFIXES: Final = tuple(sorted(importlib.machinery.all_suffixes(), key=len, reverse=True))


@dataclass(frozen=True, slots=True)
class OwnPlaces:
    """Absolute paths with unresolved links; a path may not exist yet."""

    trees: tuple[str, ...] = ()
    """Directories and files with everything in them: of the environment, and of editable packages."""
    modules: tuple[str, ...] = ()
    """Files that the program has loaded from its own directories."""
    named: tuple[str, ...] = ()
    """Files that it would import by names in its code; loaded or not, there or not."""
    folders: tuple[str, ...] = ()
    """The program's own directories that it imports from: its script's, the working directory."""

    def joined(self, other: OwnPlaces) -> OwnPlaces:
        """Return these places, and another process's environment and packages."""
        return replace(self, trees=tuple(dict.fromkeys([*self.trees, *other.trees])))


def own_places() -> OwnPlaces:
    """Return the places of this process now; the first call takes about 50 ms."""
    trees, folders = _partition_path(tuple(map(_make_absolute, sys.path)), len(sys.meta_path))
    own = _LOADED.own_files(trees, folders)
    return OwnPlaces(trees, own, find_named_places(own, folders), folders)


class _LoadedModules:
    """The files of the program's own modules, judged again when a module was loaded or replaced.

    A program opens many trees and has thousands of modules loaded, nearly always the same ones.
    """

    def __init__(self) -> None:
        self._seen: tuple[list[ModuleType], object, tuple[str, ...]] | None = None
        """The loaded modules, what else the answer depends on, and the answer."""

    def own_files(self, trees: tuple[str, ...], folders: tuple[str, ...]) -> tuple[str, ...]:
        """Return the files in the program's own directories."""
        # A copy, because another thread may import while the modules are walked.
        modules, given, seen = list(sys.modules.values()), (trees, folders, _make_absolute("")), self._seen
        if seen is not None and seen[1] == given and are_unchanged(seen[0], modules):
            return seen[2]
        own = _own_files(modules, trees, folders)
        self._seen = (modules, given, own)
        return own


_LOADED: Final = _LoadedModules()


def are_unchanged(some: list[ModuleType], others: list[ModuleType]) -> bool:
    """Whether two lists hold the same objects; a module may define equality as it likes."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _own_files(
    modules: Iterable[ModuleType], trees: tuple[str, ...], folders: tuple[str, ...]
) -> tuple[str, ...]:
    judged, own = _get_judged(trees, folders), dict[str, None]()
    for file in _list_files(modules):
        path = judged.get(file)
        if path is None:
            is_own = any(True for _ in _select_below(folders, [file])) and not _is_beneath(
                _make_absolute(file), trees
            )
            path = _make_absolute(file) if is_own else ""
            # A relative one means another file after a change of the working directory.
            if os.path.isabs(file):  # noqa: PTH117 - others depend on the working directory
                judged[file] = path
        if path:
            own[path] = None
    return tuple(own)


@lru_cache(maxsize=8)
def _get_judged(trees: tuple[str, ...], folders: tuple[str, ...]) -> dict[str, str]:
    """Return the files that were judged for these places, each with its path if it is the program's own."""
    return {}


@lru_cache(maxsize=8)
def _partition_path(path: tuple[str, ...], finders: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the installed places, and the entries of the path that belong to the program."""
    trees = dict.fromkeys([*_list_environment(), *_list_packages()])
    listed = set(_list_pth_folders())
    folders = []
    for entry in path:
        if _is_beneath(entry, trees):
            continue
        if entry in listed:
            trees.update(dict.fromkeys(_find_editable(entry)))
        elif Path(entry).is_file():  # a zip archive of modules
            trees[entry] = None
        else:
            folders.append(entry)
    return tuple(trees), tuple(dict.fromkeys(folders))


def derive_module_name(name: str) -> str:
    """Return the module that an importer finds in a file or directory of this name."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def is_installed(module: str, folders: Iterable[str]) -> bool:
    """Whether a module of this name would be imported if these directories did not hold one."""
    if module in sys.stdlib_module_names or module in LOADED_FIRST:
        return True
    away = {os.path.realpath(folder) for folder in folders}
    others = [entry for entry in sys.path if os.path.realpath(entry) not in away]
    with contextlib.suppress(ImportError, ValueError, OSError):
        return importlib.machinery.PathFinder.find_spec(module, others) is not None
    return False


def _list_environment() -> Iterator[str]:
    for prefix in {sys.prefix, sys.exec_prefix, sys.base_prefix, str(Path(sys.executable).parent.parent)}:
        yield _make_absolute(prefix)
        yield from (os.path.join(_make_absolute(prefix), part) for part in PARTS_OF_A_PREFIX)  # noqa: PTH118 - no path is touched
    paths = sysconfig.get_paths()
    yield from (_make_absolute(paths[name]) for name in SCHEMES if paths.get(name))
    yield _make_absolute(sys.executable)
    yield from map(_make_absolute, _list_site_directories())


def _list_site_directories() -> list[str]:
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*site.getsitepackages(), *user]


def _list_packages() -> Iterator[str]:
    """Yield this package's own directory, and the directories that finders of editable installs use."""
    yield str(Path(__file__).parents[1])
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            yield from _find_places(getattr(module, "MAPPING", None))
    for finder in sys.meta_path:
        yield from _find_places(getattr(finder, "_redirections", None))


def _find_places(mapping: Any) -> Iterator[str]:
    for place in mapping.values() if isinstance(mapping, Mapping) else ():
        if isinstance(place, str | PurePath):
            path = Path(_make_absolute(place))
            yield str(path.parent if path.name == "__init__.py" else path)


def _list_pth_folders() -> Iterator[str]:
    """Yield the directories that ``.pth`` files of the environment add to the path."""
    for folder in _list_site_directories():
        for file in sorted(Path(folder).glob("*.pth")) if Path(folder).is_dir() else ():
            with contextlib.suppress(OSError, UnicodeDecodeError):
                for line in file.read_text("utf-8").splitlines():
                    if line.strip() and not line.startswith(("#", "import ", "import\t")):
                        yield _make_absolute(os.path.join(folder, line.strip()))  # noqa: PTH118 - as above


def _find_editable(folder: str) -> Iterator[str]:
    """Yield a directory's packages that an editable install put on the path; all if no name is known."""
    known = {name for name in _list_editable_names() if "." not in name}
    known |= {PurePath(file).relative_to(folder).parts[0] for file in _list_loaded([folder])}
    found = [entry for entry in _list_entries(folder) if entry.is_dir() or entry.name.endswith(SUFFIXES)]
    named = [entry.path for entry in found if entry.name in known or derive_module_name(entry.name) in known]
    yield from named or [each.path for each in found if Path(each.path, "__init__.py").is_file()]


def _list_editable_names() -> Iterator[str]:
    """Yield names of distributions that are installed editable, and of their known modules."""
    for folder in _list_site_directories():
        for file in Path(folder).glob("*.dist-info/direct_url.json"):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                if parse_json(file.read_text("utf-8")).get("dir_info", {}).get("editable"):
                    installed = importlib.metadata.Distribution.at(file.parent)
                    yield installed.name.replace("-", "_").lower()
                    yield from (installed.read_text("top_level.txt") or "").split()
                    yield from (re.split(r"[:.]", point.value)[0] for point in installed.entry_points)


def _list_entries(folder: str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _list_loaded(folders: Iterable[str]) -> Iterator[str]:
    """Yield the files of loaded modules below some directories."""
    return _select_below(folders, _list_files(list(sys.modules.values())))


def _select_below(folders: Iterable[str], files: Iterable[str]) -> Iterator[str]:
    """Yield the absolute paths of the files that are below some directories."""
    beginnings = tuple(folder.rstrip("/") + "/" for folder in folders)
    for file in files:
        if (path := _make_absolute(file)).startswith(beginnings):
            yield path


def _list_files(modules: Iterable[ModuleType]) -> Iterator[str]:
    for module in modules:
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield file


def _make_absolute(path: str | PurePath) -> str:
    """Return an absolute path with unresolved links."""
    return os.path.abspath(path)  # noqa: PTH100 - resolve would


def _is_beneath(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)
