"""Suites by name: ``module:suite``, ``file.py:suite``, a ``suite.toml``, or the entry point of a suite."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final, TypedDict

from sessiontree import ConfigError, SessionTreeError
from sessiontree.bench.suite.suite import SuiteDefinition
from sessiontree.contracts.settings.given_values import Give, check_names, take_members
from sessiontree.interpreter.import_guard import add_copy, import_for_the_program, is_closed

GROUP: Final = "sessiontree.suites"
"""The group of entry points by which installed distributions offer suites."""


class _SuiteFile(TypedDict, total=False):
    """The members of a ``suite.toml``."""

    suite: Annotated[str, Give('"module:suite" or "file.py:suite"')]
    env: Annotated[str, Give('the name of a file, such as "requirements.txt"')]
    options: Annotated[dict[str, Any], Give("a table [options] with arguments of the suite's function")]


def list_installed_suites() -> dict[str, EntryPoint]:
    """Return the entry points of installed suites by name."""
    return {each.name: each for each in sorted(entry_points(group=GROUP), key=lambda each: each.name)}


def load_suite(name: str) -> SuiteDefinition:
    """Return the suite that a command names.

    Raises:
        ConfigError: it can't be found or loaded; says what was tried.
    """
    if name.endswith(".toml"):
        return _from_toml(Path(name))
    installed = list_installed_suites()
    if name in installed:
        return _check_suite(_load_member(installed[name].value), name)
    if ":" not in name:
        known = f"; installed suites: {', '.join(installed)}" if installed else ""
        raise ConfigError(f"no suite is called {name!r}; write module:suite or file.py:suite{known}")
    return _check_suite(_load_member(name), name)


def _load_member(target: str) -> Any:
    """Return what ``module:name`` or ``file.py:name`` names."""
    place, _, name = target.rpartition(":")
    add_own_modules(Path.cwd())
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else import_for_the_program(place)
    except SessionTreeError:
        raise
    except ModuleNotFoundError as error:
        if error.name and not place.startswith(error.name):
            raise ConfigError(f"{target!r} can't be loaded: it needs the module {error.name!r}") from error
        raise ConfigError(f"no module is called {place!r}; give one that is installed, or file.py") from error
    except (Exception, SystemExit) as error:  # the suite's own file failed, or ended the program
        raise ConfigError(f"{target!r} can't be loaded: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise ConfigError(f"{place!r} has no {name!r}; give the name of a Suite, or of a function")
    return getattr(module, name)


def add_own_modules(folder: Path) -> None:
    """Let modules of a folder be found, after all others: none of them replaces an installed one."""
    add_copy(str(folder))
    if not is_closed() and str(folder) not in sys.path:
        sys.path.append(str(folder))


def _load_file(path: Path) -> ModuleType:
    """Load a file as a module of its own name; its neighbours can be imported by it."""
    file = path.absolute()
    if not file.is_file():
        raise ConfigError(f"the file {str(path)!r} does not exist")
    known = sys.modules.get(file.stem)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    name = file.stem if known is None else f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(path)!r} can't be loaded as Python")
    add_own_modules(file.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _check_suite(found: Any, name: str, options: dict[str, Any] | None = None) -> SuiteDefinition:
    """Return a suite, or what a function makes of options.

    Raises:
        ConfigError: it is neither, the function failed, or there are options and no function.
    """
    is_function = callable(found) and not isinstance(found, SuiteDefinition)
    if options and not is_function:
        raise ConfigError(f"{name!r} has [options], but its suite is not a function; remove [options]")
    try:
        suite = found(**(options or {})) if is_function else found
    except SessionTreeError:
        raise
    except (Exception, SystemExit) as error:  # the function is the suite's own
        raise ConfigError(
            f"{name!r} could not make its suite: {type(error).__name__}: {error}; arguments of the function "
            "are [options] of a suite.toml"
        ) from error
    if not isinstance(suite, SuiteDefinition):
        raise ConfigError(f"{name!r} is {suite!r}; give a Suite, or a function that returns one")
    return suite


def find_module_name(name: str) -> str:
    """Return the module that a suite's name leads to, without loading it; empty = it is not a module's."""
    if name.endswith(".toml"):
        name = str(_load_toml(Path(name))["suite"])
    elif name in (installed := list_installed_suites()):
        name = installed[name].value
    return name.rpartition(":")[0]


def find_environment_file(name: str) -> Path | None:
    """Return the ``env`` of a ``suite.toml``: its suite may need it to be loaded; None = it has none."""
    env = _load_toml(Path(name)).get("env") if name.endswith(".toml") else None
    return None if env is None else Path(name).absolute().parent / env


def _from_toml(path: Path) -> SuiteDefinition:
    """Return the suite of a file: ``suite = "module:suite"``, and ``options`` for a function."""
    given = _load_toml(path)
    target = given["suite"]
    place, _, name = target.rpartition(":")
    if place.endswith(".py"):
        target = f"{path.absolute().parent / place}:{name}"
    return _check_suite(_load_member(target), str(path), given.get("options", {}))


def _load_toml(path: Path) -> dict[str, Any]:
    """Return the members of a ``suite.toml``.

    Raises:
        ConfigError: the file can't be read, or a member is wrong.
    """
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"suite {str(path)!r} can't be read: {error}") from error
    check_names(given, _SuiteFile.__optional_keys__, str(path))
    return take_members({"suite": None, **given}, _SuiteFile, f"{path}: ")
