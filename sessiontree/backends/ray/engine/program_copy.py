"""The copy of a program's own modules, made when a tree opens; hosts and gateway import from it.

Tools, models and approvers use modules that are not installed: those next to a script, a notebook or a test.
The processes of a runtime do not import from places that a session can write. So they get a copy of these
modules in the state directory, after everything installed on their path.

The copy holds the top-level modules and packages that the program has imported from outside its environment,
and those next to them, for later imports. Not here: how a process finds the copy (``import_guard.py``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

from sessiontree.backends.ray.engine.engine_home import Process, find_process
from sessiontree.contracts.errors import ConfigError
from sessiontree.interpreter.import_guard import (
    INTERNAL,
    DeclaredPackages,
    Directories,
    find_environment,
    list_declared_names,
)
from sessiontree.protected.own_places import are_unchanged

MAX_FILES: Final = 5_000
MAX_BYTES: Final = 64 * 2**20
MAX_DATA_BYTES: Final = 2**20
"""The size limit in bytes for files of a package that are not code."""
CODE: Final = (".py", *EXTENSION_SUFFIXES)
_NEVER: Final = frozenset(
    {"__main__", "__mp_main__", "sitecustomize", "usercustomize", "sessiontree", "sessiontree_tools"}
)


class CopiedFile(NamedTuple):
    """A file of the program, as it was when it was looked at."""

    path: str
    size: int
    changed_ns: int


Sources = dict[str, CopiedFile]
"""Files by their paths relative to the copy."""


class ProgramCopies:
    """The copies of one runtime: one for each state of the program in which a tree was opened.

    Args:
        state_dir: The runtime's state directory; it holds the copies.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._root: Path | None = None
        self._latest: tuple[Sources, Path] | None = None
        self._alone = threading.RLock()
        """Held by the thread that makes a copy: several trees may open at the same time."""
        self._counting = threading.Lock()
        self._asked = 0
        self._answered = 0
        self._answer: Path | None = None
        """The copy that the first ``_answered`` calls of ``take`` got."""

    @property
    def is_used(self) -> bool:
        """Whether there is a directory to remove."""
        return self._root is not None

    def root(self) -> Path:
        """Return the directory of all copies, which Workers may read. Blocks.

        The first call makes it, and removes the copies of dead programs.

        Raises:
            ConfigError: it cannot be made.
        """
        with self._alone:
            return self._make_root()

    def _make_root(self) -> Path:
        if self._root is None:
            parent = self._state_dir / "program"
            me = find_process(os.getpid())
            assert me is not None, "a running process is in /proc"  # noqa: S101 - Ray needs it as well
            try:
                self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                parent.mkdir(mode=0o700, exist_ok=True)
                for path in parent.iterdir():
                    if not _is_alive(path.name):
                        remove(path)
                self._root = Path(tempfile.mkdtemp(prefix=f"{me.pid}-{me.started}-", dir=parent))
            except OSError as error:
                raise _build_copy_error(error) from error
        return self._root

    def take(self) -> Path | None:
        """Copy the program's modules in their current state; return None if it has none. Blocks.

        Raises:
            ConfigError: a module has the name of an installed one, the modules are too many or too large, or
                the copy cannot be written.
        """
        with self._counting:
            self._asked += 1
            number = self._asked
        with self._alone:
            if self._answered < number:  # else somebody looked after this call began
                number = self._asked
                sources = find_program_modules()
                self._answer = self._take(sources) if sources else None
                self._answered = number
            return self._answer

    def _take(self, sources: Sources) -> Path:
        if self._latest is None or self._latest[0] != sources:
            try:
                self._latest = (sources, _copy_files(sources, self.root()))
            except OSError as error:
                raise _build_copy_error(error) from error
        return self._latest[1]

    def received(self, files: Mapping[str, bytes]) -> Path:
        """Write a copy from files that another node's program sent; return its directory. Blocks.

        Raises:
            ConfigError: a file's path leads out of the copy, or the copy cannot be written.
        """
        try:
            place = Path(tempfile.mkdtemp(prefix="received-", dir=self.root()))
            write_files(place, files)
        except OSError as error:
            raise _build_copy_error(error) from error
        return place

    def close(self) -> None:
        """Remove all copies. Blocks."""
        if self._root is not None:
            remove(self._root)
            with contextlib.suppress(OSError):  # other programs have copies there
                self._root.parent.rmdir()


def read_files(copy: Path) -> dict[str, bytes]:
    """Return the files of a copy by their paths in it, for another node. Blocks."""
    return {
        str(path.relative_to(copy)): path.read_bytes() for path in sorted(copy.rglob("*")) if path.is_file()
    }


def write_files(place: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a copy that another node's program sent. Blocks.

    Raises:
        ConfigError: a file's path leads out of the copy.
        OSError: the copy can't be written.
    """
    for name, data in files.items():
        path = place / name
        if not path.resolve().is_relative_to(place.resolve()):
            raise ConfigError(f"the program sent a module whose path leads out of the copy: {name!r}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)


def _build_copy_error(error: OSError) -> ConfigError:
    return ConfigError(
        f"can't copy the program's modules into the state directory: {error}; give another state_dir"
    )


def find_program_modules() -> Sources:
    """Return the files of all modules that the program imported, or may import, from outside its environment.

    Raises:
        ConfigError: an imported module has the name of an installed one, or they are too many or too large.
    """
    installed = _Installed()
    found: Sources = {}
    beside = dict.fromkeys(_list_program_folders())
    for top, modules in _find_imported(installed).items():
        if not installed.check_free(top, Path(_find_file(modules[0]))):
            continue
        whole = _find_file(sys.modules[top]) if top in sys.modules else ""
        if not whole:
            for module in modules:
                found |= _find_namesakes(module)
        elif installed.is_foreign(whole):  # otherwise a module was added to an installed package
            own = Path(whole)
            place = own.parent if own.stem == "__init__" else own
            _add_files(found, str(place), place.name)
            beside |= {path: None for path in sys.path if path == str(place.parent)}
    _check_bounds(found)
    for directory in beside:
        more = {**_find_siblings(directory, installed, {name.partition("/")[0] for name in found}), **found}
        if _is_bounded(more):
            found = more
    return found


def _find_imported(installed: _Installed) -> dict[str, list[ModuleType]]:
    """Return the loaded modules from outside the environment by their top-level names."""
    found: dict[str, list[ModuleType]] = {}
    for name, module in _find_foreign_modules(installed):
        if (top := name.partition(".")[0]) not in _NEVER:
            found.setdefault(top, []).append(module)
    return found


class _Judged:
    """Modules as they were loaded when they were judged, and those from outside some directories."""

    def __init__(self) -> None:
        self.files: dict[str, bool] = {}
        """By file: whether it is outside."""
        self.loaded: tuple[list[str], list[ModuleType]] = [], []
        """Names of the loaded modules, and the modules."""
        self.foreign: list[tuple[str, ModuleType]] = []

    def are_loaded(self, names: list[str], modules: list[ModuleType]) -> bool:
        """Whether the very same modules are loaded, under the same names."""
        return names == self.loaded[0] and are_unchanged(modules, self.loaded[1])


@lru_cache(maxsize=8)
def _get_judged(directories: tuple[str, ...]) -> _Judged:
    """Return what was judged by these directories.

    A program opens many trees and has thousands of modules loaded, nearly always the same ones. To resolve
    the links of each would take more time than all else that opens a tree.
    """
    return _Judged()


def _find_foreign_modules(installed: _Installed) -> list[tuple[str, ModuleType]]:
    judged = _get_judged(installed.directories)
    copy = sys.modules.copy()
    names, modules = list(copy), list(copy.values())
    if judged.are_loaded(names, modules):
        return judged.foreign
    found, is_lasting = [], True
    for name, module in copy.items():
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            continue
        is_foreign = judged.files.get(file)
        if is_foreign is None:
            is_foreign = installed.is_foreign(_find_file(module))
            if os.path.isabs(file):  # noqa: PTH117 - others depend on the working directory
                judged.files[file] = is_foreign
            else:
                is_lasting = False
        if is_foreign:
            found.append((name, module))
    judged.loaded, judged.foreign = (names, modules) if is_lasting else ([], []), found
    return found


@lru_cache(maxsize=8)
def _find_declared(directories: tuple[str, ...], changes: tuple[int, ...]) -> frozenset[str]:
    """Return the names that editable installs declare in directories as they were after these changes."""
    return list_declared_names(list(directories))


@lru_cache(maxsize=8)
def _get_found(path: tuple[str, ...], changes: tuple[int, ...]) -> dict[str, str | None]:
    """Return what was looked up on a path as it was after these changes: modules by name, None = none."""
    return {}


def _read_changes(directories: Iterable[str]) -> tuple[int, ...]:
    """Return when the entries of directories changed last; an installation or a removal changes that."""
    return tuple(map(_read_mtime_ns, directories))


def _read_mtime_ns(directory: str) -> int:
    try:
        return os.stat(directory).st_mtime_ns  # noqa: PTH116 - text
    except OSError:
        return 0


class _Installed:
    """The modules installed in the current environment."""

    def __init__(self) -> None:
        self.directories = tuple(find_environment())
        self._places = Directories(*self.directories)
        self._declared = _find_declared(self.directories, _read_changes(self.directories))
        self._path = [path for path in sys.path if os.path.isabs(path) and self._places.hold(path)]  # noqa: PTH117 - text
        self._others = [path for path in sys.path if os.path.isabs(path) and path not in self._path]  # noqa: PTH117 - text
        self._found = _get_found(tuple(self._path), _read_changes(self._path))

    def is_foreign(self, file: str) -> bool:
        """Return whether a module's file is outside the environment."""
        return file.endswith(CODE) and not self._places.hold(file)

    def check_free(self, name: str, theirs: Path) -> bool:
        """Return whether no installed module has this name; False if the program's module is that module.

        Raises:
            ConfigError: another module with this name is installed.
        """
        if name in INTERNAL:
            return False
        ours = self.place_of(name)
        if ours is None:
            return True
        if ours and theirs.is_relative_to(Path(ours).parent):
            return False
        raise ConfigError(
            f"the program imported its own module {name!r} from {str(theirs)!r}, and "
            f"{ours or 'the standard library'!r} is installed with the same name; the processes of the tree "
            "would import that one. Rename the program's module, uninstall the other, or use backend='local'"
        )

    def place_of(self, name: str) -> str | None:
        """Return the file installed with a name, empty for a module without a file; None = not installed."""
        if name in sys.builtin_module_names or name in sys.stdlib_module_names:
            return ""
        if name not in self._found:
            spec = PathFinder.find_spec(name, self._path)
            self._found[name] = None if spec is None else spec.origin or ""
        found = self._found[name]
        if found is None and name in self._declared:
            spec = self._find_editable(name)
            return None if spec is None else spec.origin or ""
        return found

    def _find_editable(self, name: str) -> ModuleSpec | None:
        behind = sys.meta_path[sys.meta_path.index(PathFinder) + 1 :] if PathFinder in sys.meta_path else []
        for finder in behind:
            if found := finder.find_spec(name, None):
                return found
        for path in self._others:
            if found := DeclaredPackages(path, self._declared).find_spec(name):
                return found
        return None


def _find_file(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return os.path.abspath(file) if isinstance(file, str) else ""  # noqa: PTH100 - links stay as they are


def _list_program_folders() -> Iterator[str]:
    """Yield the directories that Python itself put on the path for the program."""
    if "" in sys.path:
        yield str(Path.cwd())
    main = sys.modules.get("__main__")
    script = "" if main is None else _find_file(main)
    if script and str(Path(script).parent) in sys.path:
        yield str(Path(script).parent)


def _add_files(found: Sources, place: str, within: str) -> None:
    """Add a module, or the code and small files of a package, by their paths in a copy.

    Each file is asked for its status once, and paths are text: a program may have a thousand files, and it
    may open a hundred trees a second.
    """
    try:
        entries = list(os.scandir(place))
    except NotADirectoryError:
        with contextlib.suppress(OSError):  # it was removed
            found[within] = _build_copied_file(place, os.lstat(place))
        return
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or len(found) > MAX_FILES:
            continue
        if not entry.is_dir(follow_symlinks=False):
            _add_entry(found, entry, f"{within}/{entry.name}")
        elif entry.name != "__pycache__":
            _add_files(found, entry.path, f"{within}/{entry.name}")


def _add_entry(found: Sources, entry: os.DirEntry[str], within: str) -> None:
    """Add a file that is code or small. Links are not followed: they may lead to secret files."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return
    if stat.S_ISREG(status.st_mode) and (entry.name.endswith(CODE) or status.st_size <= MAX_DATA_BYTES):
        found[within] = _build_copied_file(entry.path, status)


def _build_copied_file(path: str, status: os.stat_result) -> CopiedFile:
    return CopiedFile(path, status.st_size, status.st_mtime_ns)


def _find_namesakes(module: ModuleType) -> Sources:
    """Return the files in the directory of a module that is in a package without ``__init__``."""
    file = Path(_find_file(module))
    package = module.__name__.split(".")[:-1]
    found: Sources = {}
    if file.stem == "__init__":
        _add_files(found, str(file.parent), "/".join([*package, file.parent.name]))
        return found
    with contextlib.suppress(OSError):
        for entry in os.scandir(file.parent):
            if entry.name.endswith(".py"):
                _add_entry(found, entry, "/".join([*package, entry.name]))
    return found


def _find_siblings(directory: str, installed: _Installed, known: set[str]) -> Sources:
    """Return the modules and packages of a directory without known ones and those with an installed name."""
    found: Sources = {}
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return {}
    for entry in entries:
        name = entry.name.partition(".")[0]
        if entry.name in known or not name.isidentifier() or name in _NEVER:
            continue
        if installed.place_of(name) is not None:
            continue
        if not entry.is_dir(follow_symlinks=False):
            if entry.name.endswith(CODE):
                _add_entry(found, entry, entry.name)
        elif os.path.isfile(f"{entry.path}/__init__.py"):  # noqa: PTH113 - text
            _add_files(found, entry.path, entry.name)
        if len(found) > MAX_FILES:
            break
    return found


def _is_bounded(sources: Sources) -> bool:
    return len(sources) <= MAX_FILES and sum(each.size for each in sources.values()) <= MAX_BYTES


def _check_bounds(sources: Sources) -> None:
    if _is_bounded(sources):
        return
    tops: dict[str, int] = {}
    for place, each in sources.items():
        top = place.partition("/")[0]
        tops[top] = tops.get(top, 0) + each.size
    largest = max(tops, key=lambda name: tops[name])
    raise ConfigError(
        f"the program's own modules are {len(sources):,} files and {sum(tops.values()):,} bytes, most of it "
        f"{largest!r}; at most {MAX_FILES:,} files and {MAX_BYTES:,} bytes are copied for the processes of a "
        "tree. Install the large ones, for example as an editable install, or use backend='local'"
    )


def _copy_files(sources: Sources, root: Path) -> Path:
    """Copy files into a new directory, read-only."""
    directory = Path(tempfile.mkdtemp(prefix="copy-", dir=root))
    for place, each in sources.items():
        target = directory / place
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            source = os.open(each.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # it was removed, or replaced by a link
            continue
        with open(source, "rb") as file, target.open("wb") as copy:  # noqa: PTH123 - a descriptor
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                shutil.copyfileobj(file, copy)
        target.chmod(0o400)
    for folder, _, _ in os.walk(directory):
        Path(folder).chmod(0o500)
    return directory


def remove(place: Path) -> None:
    """Remove a directory of read-only copies."""
    for folder, _, _ in os.walk(place):
        with contextlib.suppress(FileNotFoundError):  # another program removes it at the same time
            Path(folder).chmod(0o700)
    shutil.rmtree(place, ignore_errors=True)


def _is_alive(name: str) -> bool:
    """Return whether the program that made the directory of this name still runs."""
    words = name.split("-")
    if len(words) < 3 or not (words[0].isdecimal() and words[1].isdecimal()):
        return False
    owner = Process(int(words[0]), int(words[1]))
    return find_process(owner.pid) == owner
