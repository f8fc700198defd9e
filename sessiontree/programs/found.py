"""What programs need on this machine, and the words that start their process confined."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, files, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ConfinementUnavailable
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.sandbox import jail
from sessiontree.sandbox.commands.environment import find_library_places, get_running_interpreter

LIBRARY: Final = "pydantic_monty"
DISTRIBUTION: Final = "pydantic-monty"
INSTALL: Final = "install sessiontree[programs]"
RUNTIME: Final = "pydantic-monty-runtime"
BINARY: Final = "monty"
"""The interpreter's program, a file of the distribution above."""
_IMPORTED: Final = (LIBRARY, "typing_extensions")
_INSIDE: Final = Path(__file__).resolve().with_name("inside")
_SYSTEM: Final = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
_RUN: Final = (
    "import sys; sys.path[:0] = sys.argv[1].split(':'); del sys.argv[1]; "
    "from program import main; main(*sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class FoundInterpreter:
    """What is installed here."""

    binary: str
    """The interpreter's program; empty if it is missing."""
    version: str
    """Release of the interpreter; empty if it is missing."""
    missing: str
    """What is missing, and what to install; empty if nothing is."""

    @property
    def is_ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


@cache
def find_interpreter() -> FoundInterpreter:
    """Return what is installed here; looked up once in a process, without loading anything."""
    try:
        release = version(DISTRIBUTION)
    except PackageNotFoundError:
        release = ""
    binary = _find_installed_program() or Path(get_running_interpreter().programs, BINARY)
    if not release or find_spec(LIBRARY) is None:
        return FoundInterpreter("", "", f"the library {DISTRIBUTION} is missing; {INSTALL}")
    if not binary.is_file():
        return FoundInterpreter("", release, f"its program {BINARY} is missing; {INSTALL}")
    return FoundInterpreter(str(binary), release, "")


def _find_installed_program() -> Path | None:
    """Return where the distribution put its program: an environment may use packages of another one."""
    try:
        installed = files(RUNTIME) or ()
    except PackageNotFoundError:
        return None
    return next((Path(each.locate()).resolve() for each in installed if each.name == BINARY), None)


def build_confined_command(found: FoundInterpreter) -> list[str]:
    """Return the words that run the interpreters' process, up to its arguments.

    Raises:
        ConfinementUnavailable: something is missing.
    """
    if found.missing:
        raise ConfinementUnavailable(found.missing, "then run the program again")
    interpreter = get_running_interpreter()
    real = interpreter.real_program
    places = list(find_library_places(_IMPORTED))
    library = {str(Path(place).parent) for place in places}
    # Everything is hidden and single places are allowed: a new secret on this machine is then hidden by
    # itself.
    words = [real, "-I", "-S", "-B", str(Path(jail.__file__).resolve()), "--hide", "/", "--no-sockets"]
    places += _find_copies(library)
    for place in (*_SYSTEM, *_list_library_folders(real), real, found.binary, str(_INSIDE), *places):
        words += ["--read", place]
    for place in sorted(library):
        words += ["--list", place]
    path = ":".join([str(_INSIDE), *sorted(library)])
    return [*words, "--", real, "-I", "-S", "-B", "-c", _RUN, path]


def _find_copies(library: Iterable[str]) -> Iterator[str]:
    """Yield every copy of what is imported: of two environments that have one, either may come first."""
    for directory in sorted(library):
        for name in _IMPORTED:
            found = (Path(directory, name), Path(directory, f"{name}.py"))
            yield from (str(each) for each in found if each.exists())


def _list_library_folders(real: str) -> Iterator[str]:
    """Yield the directories of the interpreter's own libraries."""
    yield str(Path(os.__file__).resolve().parent)
    yield str(Path(real).parent.parent / "lib")
