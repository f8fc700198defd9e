"""Where modules may come from: never from a place that a session can write.

*Closed* is every process that the runtime starts. This file runs by its path before anything else, ::

    python -I -S import_guard.py (SCRIPT | -c CODE | -m MODULE) …

and allows imports from the standard library, from the site directories with what their ``.pth`` files
install, and of the *packages* of editable installs, but not from the directories that hold these packages.
Nothing is found in any other directory on ``sys.path``, no matter when it was added. A copy of the
program's own modules may be added. It is searched last, and never for installed code.

*Open* is the program of a user, from the first import of ``sessiontree`` on. Python behaves as before, with
one exception: a module of the working directory, of the script's directory or of a workspace never replaces
one that this package or Ray needs, and installed code never finds it, however it asks (``asking_code.py``).

In both kinds of process ``importlib.metadata`` finds distributions in installed places only.

This file uses only modules that every interpreter has loaded at its start, because nothing may be imported
before the guard works. So no annotation names a type that is not built in, and no future statement is used.
Long because the guard runs by its path: it would have to load each further part of itself by hand, as it
loads ``asking_code.py``.
"""

# Paths are text here: pathlib is not loaded yet, and must not be.
# ruff: noqa: PTH100, PTH112, PTH117, PTH118, PTH119, PTH120, PTH123, PTH208

import gc
import os
import site
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    PathFinder,
    SourceFileLoader,
)

HARMLESS = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONIOENCODING"})
"""Python's environment variables that name no code."""
SWITCH = "SESSIONTREE_GUARD"
"""The environment variable that leaves the program of a user unguarded if it is ``off``."""
FLAGS = frozenset({"-s", "-S", "-I", "-E", "-P", "-B", "-u"})
"""Options for Python itself that are accepted: a closed process is at least as strict."""
_SUFFIXES = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)
INTERNAL = frozenset({"test", "idlelib", "turtledemo", "lib2to3"})
"""Modules of the standard library that nothing needs; a program may have its own ``test``."""


def is_beneath(path: str, places: "frozenset[str] | set[str]") -> bool:
    """Return whether a path is one of these directories, or below one; no link is followed."""
    while path not in places:
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True


def find_environment() -> "list[str]":
    """Return the directories of the standard library and of installed distributions, links unresolved."""
    library = os.path.dirname(os.__file__)
    compiled = os.path.join(sys.base_exec_prefix, sys.platlibdir, os.path.basename(library))
    zipped = os.path.join(os.path.dirname(library), f"python{sys.version_info[0]}{sys.version_info[1]}.zip")
    prefixes = [sys.prefix, sys.exec_prefix, *site.PREFIXES]  # a virtual one comes late in PREFIXES
    found = [library, compiled, zipped, *site.getsitepackages(prefixes)]
    if site.ENABLE_USER_SITE and site.USER_SITE:
        found.append(site.USER_SITE)
    return found


class Directories:
    """A set of directories, compared by their spelling and by their resolved path."""

    def __init__(self, *directories: str) -> None:
        self.spelled: set[str] = set()
        self.real: set[str] = set()
        self.add(*directories)

    def add(self, *directories: str) -> None:
        """Add directories; they need not exist."""
        for path in directories:
            self.spelled |= {os.path.abspath(path), os.path.realpath(path)}
            self.real.add(os.path.realpath(path))

    def hold(self, path: str) -> bool:
        """Return whether a path is below one of them, both as it is spelled and after links are resolved."""
        return is_beneath(os.path.abspath(path), self.spelled) and is_beneath(
            os.path.realpath(path), self.real
        )


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OURS = Directories(_PACKAGE, os.path.join(os.path.dirname(_PACKAGE), "tools", "sessiontree_tools"))
"""Our own code, also if an editable install leaves it in a checkout."""


class Nowhere:
    """The finder of a directory in which no module is found."""

    def find_spec(self, name: str, target: object = None) -> None:
        """Find nothing."""

    def invalidate_caches(self) -> None:
        """Do nothing, because nothing is cached."""


class DeclaredPackages:
    """The finder of a directory that an editable install put on the path; it finds only declared packages."""

    def __init__(self, directory: str, names: "frozenset[str]") -> None:
        source, compiled = (SourceFileLoader, SOURCE_SUFFIXES), (ExtensionFileLoader, EXTENSION_SUFFIXES)
        self._finder = FileFinder(directory, compiled, source)
        self._names = names

    def find_spec(self, name: str, target: object = None) -> "ModuleSpec | None":
        """Return a declared package that has an ``__init__``; nothing else in the directory is installed."""
        spec = self._finder.find_spec(name) if name in self._names else None
        is_package = (
            spec is not None and spec.loader is not None and spec.submodule_search_locations is not None
        )
        return spec if is_package else None

    def invalidate_caches(self) -> None:
        """Forget the listing of the directory."""
        self._finder.invalidate_caches()


def list_declared_names(directories: "list[str]") -> "frozenset[str]":
    """Return the top-level names that editable installs in these site directories declare."""
    found: set[str] = set()
    for directory in directories:
        try:
            entries = os.listdir(directory)
        except OSError:
            continue
        for entry in entries:
            place = os.path.join(directory, entry)
            if entry.endswith(".egg-link"):
                found.add(entry.removesuffix(".egg-link").replace("-", "_"))
            elif entry.endswith(".dist-info") and '"editable": true' in _read_text(place, "direct_url.json"):
                found |= {entry.partition("-")[0], entry.partition("-")[0].lower()}
                found.update(_read_text(place, "top_level.txt").split())
                for line in _read_text(place, "entry_points.txt").splitlines():
                    found.add(line.partition("=")[2].partition(":")[0].strip().partition(".")[0])
    return frozenset(found)


def _read_text(directory: str, name: str) -> str:
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            return file.read(65536)
    except (OSError, ValueError):
        return ""


def _load_neighbour(name: str) -> "ModuleType":
    """Load a file of this package by its path: where this file is run, its package can't be imported yet."""
    known = sys.modules.get(f"sessiontree.interpreter.{name}")
    if known is not None:
        return known
    loader = SourceFileLoader(
        f"sessiontree.interpreter.{name}",
        os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py"),
    )
    module = type(sys)(loader.name)
    module.__file__, module.__loader__ = loader.path, loader
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


TYPE_CHECKING = False
if TYPE_CHECKING:  # types would be the first import that costs something
    from collections.abc import Callable, Iterable
    from importlib.metadata import DistributionFinder
    from types import ModuleType

    from sessiontree.interpreter import asking_code
else:
    asking_code = _load_neighbour("asking_code")
asking_code.OWN_FILES.add(__file__)


def import_for_the_program(name: str) -> "ModuleType":
    """Import a module that the program has named, such as an approver's; its own places may answer."""
    if name not in sys.modules:
        __import__(name)
    return sys.modules[name]


asking_code.DOORS.add(import_for_the_program.__code__)


def _find_distributions_in(is_installed: "Callable[[str], bool]") -> None:
    """Have ``importlib.metadata`` find distributions only in entries of the path that are installed places.

    What declares plugins is code: libraries load the entry points of every distribution that is found.
    """

    def find_distributions(context: "DistributionFinder.Context | None" = None) -> "Iterable[object]":
        metadata = __import__("importlib.metadata").metadata
        asked = metadata.DistributionFinder.Context() if context is None else context
        path = [each for each in asked.path if is_installed(each)]
        asked = metadata.DistributionFinder.Context(name=asked.name, path=path)
        found: Iterable[object] = metadata.MetadataPathFinder.find_distributions(asked)
        return found

    PathFinder.find_distributions = staticmethod(find_distributions)  # type: ignore[method-assign, assignment]


class ClosedImports:
    """Closes a process of the runtime; see the module's docstring. There is one per process.

    It is first in ``sys.path_hooks``, so later changes of the path have no effect. The copies of the
    program's modules are at the end of ``sys.meta_path``.
    """

    def __init__(self) -> None:
        self._copies: list[str] = []
        self._copied = Directories()
        self._seen: tuple[object, ...] = ()
        self._base = Directories()
        self._declared: frozenset[str] = frozenset()
        self._settled: tuple[str, ...] = ()

    def install(self) -> None:
        """Take effect."""
        sys.path_hooks.insert(0, self._choose_finder)  # type: ignore[arg-type]  # a finder is what can find
        # Finders that were made before the guard would go on answering.
        sys.path_importer_cache.clear()
        sys.meta_path.append(self)
        _find_distributions_in(self._is_in_environment)

    def settle(self) -> None:
        """Keep the entries that ``site`` has put on ``sys.path``; see ``tidy``."""
        self._settled = tuple(path for path in sys.path if os.path.isabs(path))
        self.tidy()

    def tidy(self) -> None:
        """Remove useless entries of ``sys.path``, because a process started from here may copy it."""
        sys.path[:] = [path for path in sys.path if path in self._settled]

    def add_copy(self, directory: str) -> None:
        """Add a copy of the program's modules after everything else, but before earlier copies."""
        if directory not in self._copies:
            self._copies.insert(0, directory)
            self._copied.add(directory)
            sys.path_importer_cache.pop(directory, None)

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Find a module in the copies if the importing code may use them."""
        if (
            path is not None
            or not self._copies
            or not asking_code.find_asker(self._is_installed_file).is_served()
        ):
            return None
        return fix_spec(PathFinder.find_spec(name, self._copies))

    def _is_installed_file(self, file: str) -> bool:
        """Return whether a file is installed code."""
        return file.startswith("<frozen ") or self._list_environment().hold(file) or OURS.hold(file)

    def _is_in_environment(self, path: str) -> bool:
        """Return whether an entry of ``sys.path`` is an installed place."""
        return os.path.isabs(path) and self._list_environment().hold(path)

    def _list_environment(self) -> Directories:
        """Return the environment's directories; recomputed if ``site`` has changed them."""
        seen = (sys.prefix, *site.PREFIXES, site.ENABLE_USER_SITE, site.USER_SITE)
        if seen != self._seen:
            directories = find_environment()
            self._base, self._declared = Directories(*directories), list_declared_names(directories)
            self._seen = seen
        return self._base

    def _choose_finder(self, path: str) -> object:
        """Return the finder of a directory outside the environment; leave the others to Python."""
        if self._list_environment().hold(path) or self._copied.hold(path) or _is_of_a_package(path):
            raise ImportError(path)
        if path in sys.path and os.path.isdir(path):
            return DeclaredPackages(path, self._declared)
        return Nowhere()


def fix_spec(spec: "ModuleSpec | None") -> "ModuleSpec | None":
    """Return a spec with fixed locations: those of a namespace package would follow ``sys.path``."""
    if spec is not None and spec.loader is None and spec.submodule_search_locations is not None:
        spec.submodule_search_locations = list(spec.submodule_search_locations)
    return spec


def _is_of_a_package(path: str) -> bool:
    """Return whether a path is outside ``sys.path`` and in the ``__path__`` of a loaded package."""
    # A copy, because another thread may import while the modules are walked.
    loaded = (module for module in list(sys.modules.values()) if not isinstance(module, LateModule))
    packages = (getattr(module, "__path__", None) for module in loaded)
    return path not in sys.path and any(path in places for places in packages if places)


class OpenImports:
    """Guards the program of a user; see the module's docstring. There is one per process.

    It comes just before Python's own finder of files. If a module of this package or of an installed
    distribution asks for a name, the name comes from an installed place or is not found. The program's own
    code gets what Python would give it, except if that would replace what this package needs. Finders of the
    program's own directories are guarded too, for those who reach them by another way.
    """

    def __init__(self) -> None:
        """Record the directories that Python itself has put on the path for a program."""
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        self._own = frozenset(
            _spell_directories(os.curdir, *([] if main is None else [os.path.dirname(main)]))
        )
        self._workspaces = Directories()
        self._mapped = Directories()
        self._environment = Directories(*find_environment(), *_find_bundle())
        self._split_of: tuple[tuple[str, ...], list[str], list[str]] = ((), [], [])
        self._is_installed: dict[str, bool] = {}
        self._needed: frozenset[str] | None = None

    def install(self) -> None:
        """Take effect."""
        finders = [index for index, finder in enumerate(sys.meta_path) if finder is PathFinder]
        sys.meta_path.insert(finders[0] if finders else 0, self)
        sys.path_hooks.insert(0, self._choose_finder)  # type: ignore[arg-type]  # a finder is what can find
        self._forget_finders()
        _find_distributions_in(lambda path: not self._is_own(path))

    def keep_out(self, workspace: str) -> None:
        """Prevent modules of a workspace from replacing those that others need."""
        if self._workspaces.hold(workspace):  # it is in one of them already
            return
        self._workspaces.add(workspace)
        self._split_of = ((), [], [])
        self._forget_finders()

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Find a module that the program's own one must not replace.

        Raises:
            ModuleNotFoundError: installed code imports a module that is not installed.
        """
        if path is not None:
            return None
        installed, own = self._split()
        if not own:
            return None
        asker = asking_code.find_asker(self._is_installed_file)
        if not asker.is_served():
            spec = self._find_installed(name, installed)
            if spec is None and asker.imports:
                raise ModuleNotFoundError(f"No module named {name!r}{_explain_refusal(name, own)}", name=name)
            return spec
        if PathFinder.find_spec(name, own) is None or not self._is_needed(name):
            return None
        return self._find_installed(name, installed)

    def _choose_finder(self, path: str) -> object:
        """Return the finder of one of the program's own places, which answers nobody else."""
        if not self._is_own(path) and not ("" in sys.path and path == os.path.abspath(os.curdir)):
            raise ImportError(path)
        for hook in sys.path_hooks:
            if hook != self._choose_finder:
                try:
                    return self._guard(hook(path))
                except ImportError:
                    continue
        raise ImportError(path)

    def _guard(self, finder: object) -> object:
        """Have a finder answer the program alone about top-level names; its type remains what it is."""

        def find_spec(name: str, target: object = None) -> "ModuleSpec | None":
            if "." not in name and not asking_code.find_asker(self._is_installed_file).is_served():
                return None
            # The method of the class, because the one of the instance is this function.
            spec: ModuleSpec | None = type(finder).find_spec(finder, name, target)  # type: ignore[attr-defined]
            return spec

        finder.find_spec = find_spec  # type: ignore[attr-defined]
        return finder

    def _forget_finders(self) -> None:
        """Have Python ask again for the finders of what is on the path."""
        for path in (*sys.path, *_spell_directories(os.curdir)):
            sys.path_importer_cache.pop(path, None)

    def _split(self) -> "tuple[list[str], list[str]]":
        """Return the entries of ``sys.path``: first the installed and the user's, then the program's own."""
        now = tuple(sys.path)
        if self._split_of[0] != now:
            own = [path for path in now if isinstance(path, str) and self._is_own(path)]
            self._split_of = (now, [path for path in now if path not in own], own)
        return self._split_of[1:]

    def _is_own(self, path: str) -> bool:
        if not os.path.isabs(path):
            return True
        if self._environment.hold(path):
            return False
        return not self._own.isdisjoint(_spell_directories(path)) or not _is_apart(path, self._workspaces)

    def _is_installed_file(self, file: str) -> bool:
        """Return whether a file is installed; cached by directory, because there are thousands of calls."""
        if file.startswith("<"):
            return file.startswith("<frozen ")
        directory = os.path.dirname(file)
        if directory not in self._is_installed:
            places = (OURS, self._environment, self._mapped)
            self._is_installed[directory] = any(each.hold(directory) for each in places)
        return self._is_installed[directory]

    def _find_installed(self, name: str, installed: "list[str]") -> "ModuleSpec | None":
        spec = fix_spec(PathFinder.find_spec(name, installed))
        if spec is not None and spec.loader is not None:
            return spec
        behind = sys.meta_path[sys.meta_path.index(PathFinder) + 1 :] if PathFinder in sys.meta_path else []
        for finder in behind:  # the finders of editable installs
            found = finder.find_spec(name, None)
            if found is not None:
                self._mapped.add(*(found.submodule_search_locations or ()))
                return found
        return spec

    def _is_needed(self, name: str) -> bool:
        """Return whether this package, or what it depends on, may import a name."""
        if name in sys.stdlib_module_names:
            return name not in INTERNAL
        if self._needed is None:
            self._needed = frozenset()  # for imports during the next line
            self._needed = list_required_names("sessiontree")
        return name in self._needed


def _explain_refusal(name: str, own: "list[str]") -> str:
    """Return what an error says if the program has a module that installed code may not import."""
    for place in own:
        ways = (os.path.join(place, name), *(os.path.join(place, name + end) for end in _SUFFIXES))
        if any(os.path.lexists(way) for way in ways):
            return (
                f": {place or os.curdir!r} has one, but since sessiontree is imported installed code gets no "
                "module from there; import it in the program first (see docs/operators.md)"
            )
    return ""


def _spell_directories(*paths: str) -> "set[str]":
    return {spelled for path in paths for spelled in (os.path.abspath(path), os.path.realpath(path))}


def _is_apart(path: str, places: Directories) -> bool:
    """Return whether a path is outside these places, both as spelled and with links resolved."""
    return not any(is_beneath(each, places.spelled) for each in _spell_directories(path))


def _find_bundle() -> "list[str]":
    """Return the directory that ``pip install -t`` installed this package into; empty if it did not."""
    above = os.path.dirname(_PACKAGE)
    try:
        entries = os.listdir(above)
    except OSError:  # for example a zip archive, which holds everything
        return [above]
    return (
        [above]
        if any(entry.startswith("sessiontree-") and entry.endswith(".dist-info") for entry in entries)
        else []
    )


def _name_in(requirement: str) -> str:
    """Return the name of the distribution in a requirement."""
    text = requirement.strip().lower().replace("_", "-")
    ends = [at for at, sign in enumerate(text) if not (sign.isalnum() or sign in "-.")]
    return text[: ends[0]] if ends else text


def list_required_names(distribution: str) -> "frozenset[str]":
    """Return the top-level modules of a distribution and of its requirements that are installed."""
    metadata = __import__("importlib.metadata").metadata  # rarely needed, so not imported at the start
    found: set[str] = set()
    asked, seen = [distribution], set()
    while asked:
        name = _name_in(asked.pop())
        if name in seen:
            continue
        seen.add(name)
        try:
            there = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        asked += there.requires or []
        names = (there.read_text("top_level.txt") or "").split()
        for line in () if names else (there.read_text("RECORD") or "").splitlines():
            top = line.partition(",")[0].partition("/")[0]
            if not top.endswith((".dist-info", ".pth")) and top not in {"..", "__pycache__"}:
                names.append(top.partition(".")[0])
        found.update(names)
    return frozenset(found)


_guards: "list[ClosedImports | OpenImports]" = []
COLLECT_AFTER = (10_000, 50, 20)
"""When the runtime's processes look for circular garbage, of which sessions leave little. With Python's own
numbers that takes a tenth of the time of small sessions."""
_put_off: "list[str]" = []
"""Packages that seem not to be installed while the process starts, and those imported at their first use."""


def close_imports(user_site: str = "") -> ClosedImports:
    """Close this process, which was started with ``-I -S``, and find its environment.

    Args:
        user_site: The directory of the user's own installed distributions; empty = they are not used.
    """
    guard = ClosedImports()
    guard.install()
    _guards.append(guard)
    site.ENABLE_USER_SITE = bool(user_site)
    site.USER_SITE = user_site or None
    site.main()
    guard.settle()
    return guard


def close_settled(without: str) -> None:
    """Close this process, whose environment is already set up, and remove one directory from the path."""
    guard = ClosedImports()
    guard.install()
    _guards.append(guard)
    sys.path[:] = [path for path in sys.path if path != without]
    guard.settle()


def guard_imports() -> None:
    """Guard the process that imports this package, unless it is guarded or closed, or a switch is off."""
    if not _guards and os.environ.get(SWITCH) != "off":
        guard = OpenImports()
        guard.install()
        _guards.append(guard)


def is_closed() -> bool:
    """Return whether this process is closed."""
    return any(isinstance(guard, ClosedImports) for guard in _guards)


def keep_out(workspace: str) -> None:
    """Prevent modules of a workspace from replacing installed ones; a closed process needs no such step."""
    for guard in _guards:
        if isinstance(guard, OpenImports):
            guard.keep_out(workspace)


def add_copy(directory: str) -> None:
    """Let a closed process find the program's modules in a copy; other processes ignore the call."""
    for guard in _guards:
        if isinstance(guard, ClosedImports):
            guard.add_copy(directory)


def tidy() -> None:
    """Remove what others have added to ``sys.path`` since the process was closed; end a quick start."""
    for guard in _guards:
        if isinstance(guard, ClosedImports):
            guard.tidy()
    if _put_off:
        gc.freeze()  # imported objects stay until the end, so no collection needs to scan them
        gc.set_threshold(*COLLECT_AFTER)
        gc.enable()
    while _put_off:
        name = _put_off.pop()
        found: object = sys.modules.get(name, sys)
        if found is None or isinstance(found, LateModule):
            del sys.modules[name]


class LateModule(type(sys)):  # type: ignore[misc]  # modules have this type, and no import names it here
    """Replaces a package that has been imported and not used; its first use imports the real one."""

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the real package."""
        own = str(self.__name__)
        if sys.modules.get(own) is self:
            # Before the import, which would otherwise find this object and return it.
            del sys.modules[own]
        return getattr(__import__(own), name)


def start_quickly(without: str, late: "tuple[str, ...]") -> None:
    """Collect no garbage until ``tidy``, and import less until then.

    Args:
        without: This package seems not to be installed.
        late: These packages are imported when they are used, not when an import statement names them.
    """
    gc.disable()
    _put_off.extend((without, *late))
    sys.modules[without] = None  # type: ignore[assignment]  # the import system takes it to mean just that
    sys.modules.update((name, LateModule(name)) for name in late)


def list_user_site_words() -> "list[str]":
    """Return the option that enables the user's own distributions; empty if they are disabled here."""
    return ["--user-site", site.USER_SITE] if site.ENABLE_USER_SITE and site.USER_SITE else []


def build_command(*program: str) -> "list[str]":
    """Return the command line that runs a program closed in this interpreter; see ``run``."""
    kept = [f"-Xutf8={sys.flags.utf8_mode}", *(["-u"] if os.environ.get("PYTHONUNBUFFERED") else [])]
    return [sys.executable, "-I", "-S", *kept, os.path.abspath(__file__), *list_user_site_words(), *program]


def clean_variables() -> None:
    """Remove Python's environment variables that may name code; processes started from here inherit this."""
    for name in [name for name in os.environ if name.startswith("PYTHON") and name not in HARMLESS]:
        del os.environ[name]
    sys.dont_write_bytecode = sys.dont_write_bytecode or bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))


def run(words: "list[str]", user_site: str = "") -> None:
    """Run a program closed: a script, ``-c`` and code, or ``-m`` and a module. Returns when it has ended."""
    clean_variables()
    while words[0] in FLAGS:
        sys.dont_write_bytecode = sys.dont_write_bytecode or words[0] == "-B"
        words = words[1:]
    close_imports(user_site)
    _use_encoding(os.environ.get("PYTHONIOENCODING", ""))
    kind, main = words[0], type(sys)("__main__")
    if kind == "-m":
        sys.argv[:] = words[1:]
        __import__("runpy").run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if kind == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        code = compile(words[1], "<string>", "exec")
    else:
        sys.argv[:] = words
        main.__file__ = kind
        with open(kind, "rb") as file:
            code = compile(file.read(), kind, "exec")
    sys.modules["__main__"] = main
    exec(code, main.__dict__)  # noqa: S102 - the program is the caller's own


def _use_encoding(wanted: str) -> None:
    """Set the standard streams to ``PYTHONIOENCODING``, which an isolated interpreter ignores."""
    encoding, _, errors = wanted.partition(":")
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if wanted and hasattr(stream, "reconfigure"):
            handled = "backslashreplace" if stream is sys.stderr else errors
            stream.reconfigure(encoding=encoding or None, errors=handled or None)


if __name__ == "__main__":
    rest, own_site = sys.argv[1:], ""
    if rest[:1] == ["--user-site"]:
        own_site, rest = rest[1], rest[2:]
    sys.modules["sessiontree.interpreter.import_guard"] = sys.modules["__main__"]
    run(rest, own_site)
