"""Where modules may come from: never from a place that a session can write.

*Closed*, in every process the runtime starts: this file, run by its path before anything else, ::

    python -I -S import_guard.py (SCRIPT | -c CODE | -m MODULE) …

leaves the standard library, the site directories with what their ``.pth`` files install, and the *packages*
of editable installs, never the directories these are in. Whatever else is put on ``sys.path``, by whomever
and whenever, finds nothing. A copy of the program's own modules may be added; it stands behind everything,
and an import statement of installed code never reaches it.

*Open*, in the program of a user, from the first import of ``sessiontree`` on: Python goes on as it was,
except that a module of the working directory, of the script's directory or of a workspace never takes the
place of one that this package or Ray needs, and is never found by an import statement of installed code.

It stands on the modules that every interpreter has loaded when it starts, for until it works nothing may be
imported. So no annotation names a type that is not built in, and there is no future statement.
"""

# Paths are text here: pathlib is not loaded yet, and must not be.
# ruff: noqa: PTH100, PTH112, PTH117, PTH118, PTH119, PTH120, PTH123, PTH208

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
"""Variables of Python that name no code."""
FLAGS = frozenset({"-s", "-S", "-I", "-E", "-P", "-B", "-u"})
"""Words for Python itself: stricter ones hold already."""
INTERNAL = frozenset({"test", "idlelib", "turtledemo", "lib2to3"})
"""Of the standard library what nothing needs; a program may well have its own ``test``."""
_IMPORT_MACHINERY = ("<frozen importlib", "<frozen zipimport")


def is_beneath(path: str, places: "frozenset[str] | set[str]") -> bool:
    """Return whether a path is one of these directories, or in one; no link is followed."""
    while path not in places:
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True


def environment() -> "list[str]":
    """Return the directories of the standard library and of installed distributions, as they are spelled."""
    library = os.path.dirname(os.__file__)
    compiled = os.path.join(sys.base_exec_prefix, sys.platlibdir, os.path.basename(library))
    zipped = os.path.join(os.path.dirname(library), f"python{sys.version_info[0]}{sys.version_info[1]}.zip")
    prefixes = [sys.prefix, sys.exec_prefix, *site.PREFIXES]  # a virtual one comes late among the latter
    found = [library, compiled, zipped, *site.getsitepackages(prefixes)]
    if site.ENABLE_USER_SITE and site.USER_SITE:
        found.append(site.USER_SITE)
    return found


class Directories:
    """A set of directories, found again by any spelling that can't be turned elsewhere."""

    def __init__(self, *directories: str) -> None:
        self.spelled: set[str] = set()
        self.real: set[str] = set()
        self.add(*directories)

    def add(self, *directories: str) -> None:
        """Take directories in; those that are not there are no harm."""
        for path in directories:
            self.spelled |= {os.path.abspath(path), os.path.realpath(path)}
            self.real.add(os.path.realpath(path))

    def hold(self, path: str) -> bool:
        """Return whether a path is beneath one of them as it is spelled, and where it leads."""
        return is_beneath(os.path.abspath(path), self.spelled) and is_beneath(
            os.path.realpath(path), self.real
        )


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OURS = Directories(_PACKAGE, os.path.join(os.path.dirname(_PACKAGE), "tools", "sessiontree_tools"))
"""Our own code, also where an editable install leaves it in a checkout."""


class Nowhere:
    """The finder of a directory that no module comes from."""

    def find_spec(self, name: str, target: object = None) -> None:
        """Find nothing."""

    def invalidate_caches(self) -> None:
        """Have no cache."""


class DeclaredPackages:
    """The finder of a directory that an editable install put on the path: its packages alone are found."""

    def __init__(self, directory: str, names: "frozenset[str]") -> None:
        source, compiled = (SourceFileLoader, SOURCE_SUFFIXES), (ExtensionFileLoader, EXTENSION_SUFFIXES)
        self._finder = FileFinder(directory, compiled, source)
        self._names = names

    def find_spec(self, name: str, target: object = None) -> "ModuleSpec | None":
        """Return a declared package that has an ``__init__``; nothing else in there is installed."""
        spec = self._finder.find_spec(name) if name in self._names else None
        is_package = (
            spec is not None and spec.loader is not None and spec.submodule_search_locations is not None
        )
        return spec if is_package else None

    def invalidate_caches(self) -> None:
        """Forget what the directory held."""
        self._finder.invalidate_caches()


def declared_names(directories: "list[str]") -> "frozenset[str]":
    """Return the top-level names that editable installs in these site directories say they have."""
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
            elif entry.endswith(".dist-info") and '"editable": true' in _text(place, "direct_url.json"):
                found |= {entry.partition("-")[0], entry.partition("-")[0].lower()}
                found.update(_text(place, "top_level.txt").split())
                for line in _text(place, "entry_points.txt").splitlines():
                    found.add(line.partition("=")[2].partition(":")[0].strip().partition(".")[0])
    return frozenset(found)


def _text(directory: str, name: str) -> str:
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            return file.read(65536)
    except (OSError, ValueError):
        return ""


def importer() -> "tuple[str, bool]":
    """Return the file of the code that asks for an import, and whether it does so by an import statement."""
    frame = sys._getframe(2)  # noqa: SLF001 - there is no other way to learn who imports
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_IMPORT_MACHINERY):
        frame = frame.f_back
    if frame.f_code.co_code[frame.f_lasti] == IMPORT_STATEMENT:
        return frame.f_code.co_filename, True
    while frame.f_back is not None and _is_of_importlib(frame.f_globals.get("__name__")):
        frame = frame.f_back
    return frame.f_code.co_filename, False


def _is_of_importlib(name: object) -> bool:
    return isinstance(name, str) and (name == "importlib" or name.startswith("importlib."))


def _operations(source: str) -> "set[int]":
    return set(compile(source, "", "exec").co_code[::2])


IMPORT_STATEMENT = min(_operations("import a") - _operations("a = 0\nb = None"))
"""Number of the instruction of an import statement; the module that lists them is not loaded yet."""


class ClosedImports:
    """What makes a process of the runtime closed; see the module's text. There is one a process.

    It stands in front of ``sys.path_hooks``: who changes the path later changes nothing. The copies of the
    program's modules stand at the end of ``sys.meta_path``.
    """

    def __init__(self) -> None:
        """Begin with what the interpreter belongs to."""
        self._copies: list[str] = []
        self._copied = Directories()
        self._seen: tuple[object, ...] = ()
        self._base = Directories()
        self._declared: frozenset[str] = frozenset()
        self._settled: tuple[str, ...] = ()

    def install(self) -> None:
        """Work from now on."""
        sys.path_hooks.insert(0, self._finder_of)  # type: ignore[arg-type]  # a finder is what can find
        sys.path_importer_cache.clear()
        sys.meta_path.append(self)

    def settle(self) -> None:
        """Keep on ``sys.path`` what ``site`` has put there; see ``tidy``."""
        self._settled = tuple(path for path in sys.path if os.path.isabs(path))
        self.tidy()

    def tidy(self) -> None:
        """Take off ``sys.path`` what nothing is found in; a process that is started from here may copy it."""
        sys.path[:] = [path for path in sys.path if path in self._settled]

    def add_copy(self, directory: str) -> None:
        """Have a copy of the program's modules stand behind everything; the latest before the others."""
        if directory not in self._copies:
            self._copies.insert(0, directory)
            self._copied.add(directory)
            sys.path_importer_cache.pop(directory, None)

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Find what nobody else has found among the copies, for whoever may."""
        if path is not None or not self._copies:
            return None
        file, is_statement = importer()
        if is_statement and (
            file.startswith("<frozen ") or self._environment().hold(file) or OURS.hold(file)
        ):
            return None
        return fixed(PathFinder.find_spec(name, self._copies))

    def _environment(self) -> Directories:
        """Return the environment's places: ``site`` may just be finding them."""
        seen = (sys.prefix, *site.PREFIXES, site.ENABLE_USER_SITE, site.USER_SITE)
        if seen != self._seen:
            directories = environment()
            self._base, self._declared = Directories(*directories), declared_names(directories)
            self._seen = seen
        return self._base

    def _finder_of(self, path: str) -> object:
        """Return the finder of a directory that is not of the environment; leave the others to Python."""
        if self._environment().hold(path) or self._copied.hold(path) or _is_of_a_package(path):
            raise ImportError(path)
        if path in sys.path and os.path.isdir(path):
            return DeclaredPackages(path, self._declared)
        return Nowhere()


def fixed(spec: "ModuleSpec | None") -> "ModuleSpec | None":
    """Return a spec whose places stay what they are: a namespace's follow ``sys.path`` otherwise."""
    if spec is not None and spec.loader is None and spec.submodule_search_locations is not None:
        spec.submodule_search_locations = list(spec.submodule_search_locations)
    return spec


def _is_of_a_package(path: str) -> bool:
    """Return whether a loaded package says that its modules are there, and the path does not offer it."""
    packages = (getattr(module, "__path__", None) for module in list(sys.modules.values()))
    return path not in sys.path and any(path in places for places in packages if places)


class OpenImports:
    """What guards the program of a user; see the module's text. There is one a process.

    It stands just before Python's own finder of files. Found by a module of this package or of an installed
    distribution, a name comes from an installed place or is not found. The program's own code gets what
    Python would give it, except where that would stand in for what this package needs.
    """

    def __init__(self) -> None:
        """Begin with the directories that Python itself has put on the path for a program."""
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        self._own = frozenset(_directories(os.curdir, *([] if main is None else [os.path.dirname(main)])))
        self._workspaces = Directories()
        self._mapped = Directories()
        self._environment = Directories(*environment(), *_bundle())
        self._split_of: tuple[tuple[str, ...], list[str], list[str]] = ((), [], [])
        self._is_installed: dict[str, bool] = {}
        self._needed: frozenset[str] | None = None

    def install(self) -> None:
        """Work from now on."""
        finders = [index for index, finder in enumerate(sys.meta_path) if finder is PathFinder]
        sys.meta_path.insert(finders[0] if finders else 0, self)

    def keep_out(self, workspace: str) -> None:
        """Have no module that somebody else needs come from a workspace."""
        self._workspaces.add(workspace)
        self._split_of = ((), [], [])

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Find a module where an own one must not stand in for it.

        Raises:
            ModuleNotFoundError: an import statement of installed code asks for what is not installed.
        """
        if path is not None:
            return None
        installed, own = self._split()
        if not own:
            return None
        file, is_statement = importer()
        is_ours = OURS.hold(file)
        if is_statement and (is_ours or self._holds(file)):
            spec = self._found(name, installed)
            if spec is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return spec
        if is_ours:
            return self._found(name, installed)
        if PathFinder.find_spec(name, own) is None or not self._is_needed(name):
            return None
        return self._found(name, installed)

    def _split(self) -> "tuple[list[str], list[str]]":
        """Return the places on ``sys.path`` that are installed or the user's, and the program's own."""
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
        return not self._own.isdisjoint(_directories(path)) or not _is_apart(path, self._workspaces)

    def _holds(self, file: str) -> bool:
        """Return whether code is installed; by its directory, as that is asked a thousand times."""
        if file.startswith("<"):
            return file.startswith("<frozen ")
        directory = os.path.dirname(file)
        if directory not in self._is_installed:
            places = (self._environment, self._mapped)
            self._is_installed[directory] = any(each.hold(directory) for each in places)
        return self._is_installed[directory]

    def _found(self, name: str, installed: "list[str]") -> "ModuleSpec | None":
        spec = fixed(PathFinder.find_spec(name, installed))
        if spec is not None and spec.loader is not None:
            return spec
        behind = sys.meta_path[sys.meta_path.index(PathFinder) + 1 :] if PathFinder in sys.meta_path else []
        for finder in behind:  # an editable install's own
            found = finder.find_spec(name, None)
            if found is not None:
                self._mapped.add(*(found.submodule_search_locations or ()))
                return found
        return spec

    def _is_needed(self, name: str) -> bool:
        """Return whether a name is one that this package, or what it stands on, may import."""
        if name in sys.stdlib_module_names:
            return name not in INTERNAL
        if self._needed is None:
            self._needed = frozenset()  # while this very question is answered
            self._needed = required_names("sessiontree")
        return name in self._needed


def _directories(*paths: str) -> "set[str]":
    return {spelled for path in paths for spelled in (os.path.abspath(path), os.path.realpath(path))}


def _is_apart(path: str, places: Directories) -> bool:
    """Return whether neither spelling nor target of a path is beneath these places."""
    return not any(is_beneath(each, places.spelled) for each in _directories(path))


def _bundle() -> "list[str]":
    """Return this package's directory where it was installed beside a program (``pip install -t``)."""
    above = os.path.dirname(_PACKAGE)
    try:
        entries = os.listdir(above)
    except OSError:  # an archive, for example: it is all there is
        return [above]
    return (
        [above]
        if any(entry.startswith("sessiontree-") and entry.endswith(".dist-info") for entry in entries)
        else []
    )


def _name_in(requirement: str) -> str:
    """Return the distribution a requirement is about."""
    text = requirement.strip().lower().replace("_", "-")
    ends = [at for at, sign in enumerate(text) if not (sign.isalnum() or sign in "-.")]
    return text[: ends[0]] if ends else text


def required_names(distribution: str) -> "frozenset[str]":
    """Return the top-level modules of a distribution and of what it requires, as far as it is there."""
    metadata = __import__("importlib.metadata").metadata  # rarely needed, so not loaded before
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


def close_imports(user_site: str = "") -> ClosedImports:
    """Close this process, which was started with ``-I -S``, and find its environment.

    Args:
        user_site: The directory of a user's own installed distributions, where they count.
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
    """Close this process, whose environment was found already; one directory leaves the path."""
    guard = ClosedImports()
    guard.install()
    _guards.append(guard)
    sys.path[:] = [path for path in sys.path if path != without]
    guard.settle()


def guard_imports() -> None:
    """Guard the process that imports this package, unless it is closed or guarded already."""
    if not _guards:
        guard = OpenImports()
        guard.install()
        _guards.append(guard)


def is_closed() -> bool:
    """Return whether this process is closed."""
    return any(isinstance(guard, ClosedImports) for guard in _guards)


def keep_out(workspace: str) -> None:
    """Have no module of a workspace stand in for an installed one; in a closed process none does anyway."""
    for guard in _guards:
        if isinstance(guard, OpenImports):
            guard.keep_out(workspace)


def add_copy(directory: str) -> None:
    """Have modules of the program be found in a copy of them; the program itself has them."""
    for guard in _guards:
        if isinstance(guard, ClosedImports):
            guard.add_copy(directory)


def tidy() -> None:
    """Take off ``sys.path`` what others have put there since the process was closed."""
    for guard in _guards:
        if isinstance(guard, ClosedImports):
            guard.tidy()


def user_site_words() -> "list[str]":
    """Return the option that lets a user's own installed distributions count; none where they do not here."""
    return ["--user-site", site.USER_SITE] if site.ENABLE_USER_SITE and site.USER_SITE else []


def words_for(*program: str) -> "list[str]":
    """Return the words that start this interpreter closed, as a program; see ``run``."""
    kept = [f"-Xutf8={sys.flags.utf8_mode}", *(["-u"] if os.environ.get("PYTHONUNBUFFERED") else [])]
    return [sys.executable, "-I", "-S", *kept, os.path.abspath(__file__), *user_site_words(), *program]


def clean_variables() -> None:
    """Take away every variable of Python that may name code, for what is started from here as well."""
    for name in [name for name in os.environ if name.startswith("PYTHON") and name not in HARMLESS]:
        del os.environ[name]
    sys.dont_write_bytecode = sys.dont_write_bytecode or bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))


def run(words: "list[str]", user_site: str = "") -> None:
    """Be a program, closed: a script, ``-c`` and code, or ``-m`` and a module. Returns when it is over."""
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
    """Have the standard streams speak as ``PYTHONIOENCODING`` asks: an isolated interpreter does not look."""
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
