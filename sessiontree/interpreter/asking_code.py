"""Which code asks for a module, and whether the program's own places may answer.

The code that asks is the first frame outside the import system, and outside the modules of the standard
library that look up a name for their caller. The program's own places answer its own code, and whoever
unpickles its objects. They never answer installed code, because that asks for optional packages by names that
anybody may give to a file.

This file uses only modules that every interpreter has loaded at its start; see ``import_guard.py``.
"""

# Paths are text here: pathlib is not loaded yet, and must not be.
# ruff: noqa: PTH120, SLF001

import _frozen_importlib
import _frozen_importlib_external
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types would be the first import that costs something
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

MACHINERY = frozenset({"imp", "importlib", "logging.config", "pkgutil", "pydoc", "runpy", "unittest.mock"})
"""Modules of the standard library that look up a name for their caller; with what is below ``importlib``."""
OWN_FILES: "set[str]" = {__file__}
"""The files of the guard, which is part of the import system."""
DOORS: "set[CodeType]" = set()
"""Functions of the guard that import a module for the program."""
_IMPORT_SYSTEM = frozenset(
    {"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>", "<frozen zipimport>"}
)
_FIND_SPEC: "CodeType" = _frozen_importlib._find_spec.__code__  # type: ignore[attr-defined]
_IMPORTS: "CodeType" = _frozen_importlib._find_and_load.__code__  # type: ignore[attr-defined]
_COMPILED = frozenset(
    way.__code__
    for loader in (_frozen_importlib_external.ExtensionFileLoader, _frozen_importlib.BuiltinImporter)
    for way in (loader.create_module, loader.exec_module)
    if hasattr(way, "__code__")
)
"""Functions below which a compiled module initialises itself; it has no frame of its own."""


def _list_operations(source: str) -> "set[int]":
    return set(compile(source, "", "exec").co_code[::2])


_IMPORT_FUNCTION = vars(sys.modules["builtins"])["__import__"]
IMPORT_STATEMENT = min(_list_operations("import a") - _list_operations("a = 0\nb = None"))
"""Opcode of an import statement; the module that lists opcodes is not loaded yet."""


class AskingCode:
    """The code that asks for a module.

    Args:
        frame: Its frame; None = it has none.
        file: Its file; empty = text that the program runs.
        is_installed: Whether it is installed code.
    """

    def __init__(self, frame: "FrameType | None", file: str, *, is_installed: bool) -> None:
        self.file = file
        self.is_installed = is_installed
        self.imports = False
        """Whether it imports the module, and does not only ask where it is."""
        self.is_statement = False
        """Whether it uses an import statement."""
        self.by_call = False
        """Whether it calls a function of the standard library's that looks up a name for its caller."""
        self.by_finder = False
        """Whether another finder on ``sys.meta_path`` looks, for a name that it is responsible for."""
        self.is_direct = False
        """Whether it calls a finder itself."""
        self.is_for_the_program = False
        """Whether the guard looks up what the program has named."""
        self._frame = frame

    def is_served(self) -> bool:
        """Return whether the program's own places may answer."""
        if self.is_for_the_program:
            return True
        if self._frame is None:  # a compiled module while it is initialised
            return not self.is_installed
        if self.is_statement:
            return not self.is_installed
        if self.is_installed:
            by_name = self.by_call or _has_import_name(self._frame)
            return self.by_finder or (by_name and self._is_running_program()) or _is_unpickling(self._frame)
        # Else a compiled function that it calls asks for itself.
        return self.by_call or self.is_direct or _has_import_name(self._frame) or _is_unpickling(self._frame)

    def _is_running_program(self) -> bool:
        """Return whether Python was asked to run the package that asks, such as ``-m unittest``."""
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        package = spec is not None and spec.parent and spec.origin and os.path.dirname(spec.origin)
        return bool(package) and self.file.startswith(f"{package}{os.sep}")


def find_asker(is_installed: "Callable[[str], bool]") -> AskingCode:
    """Return who asks for the module that is looked up now in this thread.

    Args:
        is_installed: Says whether a file is installed; it is asked about one file.
    """
    frame: FrameType | None = sys._getframe(1)
    found: FrameType | None = None
    by_call = by_finder = is_statement = was_asked = imports = False
    while frame is not None:
        code = frame.f_code
        if code.co_filename in _IMPORT_SYSTEM:
            if found is not None and (was_asked or code is not _FIND_SPEC):
                break
            if code is _FIND_SPEC:
                # What was found is a finder that looks for somebody else, who is further out.
                by_finder, found, was_asked, by_call = found is not None, None, True, False
            elif code in _COMPILED:
                return _find_compiled_module(frame, is_installed, imports=imports)
            imports = imports or code is _IMPORTS
        elif found is None and (code in DOORS or code.co_filename not in OWN_FILES):
            is_statement = was_asked and not by_call and _is_at_statement(frame)
            if is_statement or not _is_machinery(frame):
                found = frame
                if was_asked:
                    break
            else:
                by_call = True
        frame = frame.f_back
    file = "" if found is None else _find_file(found)
    asker = AskingCode(found, file, is_installed=found is None or bool(file and is_installed(file)))
    asker.imports, asker.is_statement, asker.is_direct = imports, is_statement, not was_asked
    asker.by_call, asker.by_finder = by_call, by_finder
    asker.is_for_the_program = found is not None and found.f_code in DOORS
    return asker


def _is_at_statement(frame: "FrameType") -> bool:
    return frame.f_code.co_code[frame.f_lasti] == IMPORT_STATEMENT


def _is_machinery(frame: "FrameType") -> bool:
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and (name in MACHINERY or name.startswith("importlib."))


def _find_compiled_module(
    frame: "FrameType", is_installed: "Callable[[str], bool]", *, imports: bool
) -> AskingCode:
    """Return the compiled module that a loader initialises in this frame."""
    file = getattr(frame.f_locals.get("self"), "path", None)
    asker = AskingCode(None, file or "", is_installed=not isinstance(file, str) or is_installed(file))
    asker.imports = imports
    return asker


def _find_file(frame: "FrameType") -> str:
    """Return the file of a frame's code; for generated code, that of the module or function that runs it."""
    at: FrameType | None = frame
    while at is not None:
        file = at.f_code.co_filename
        if not file.startswith("<") or file.startswith("<frozen "):
            return file
        if at.f_globals.get("__name__") in {"__main__", "__mp_main__"}:
            return ""
        place = at.f_globals.get("__file__")
        if isinstance(place, str):
            return place
        at = at.f_back
    return ""


def _has_import_name(frame: "FrameType") -> bool:
    """Return whether code names the function ``__import__``, also by another global name."""
    code, values = frame.f_code, frame.f_globals
    is_named = "__import__" in code.co_names or "__import__" in code.co_consts
    return is_named or any(values.get(name) is _IMPORT_FUNCTION for name in code.co_names)


def _is_unpickling(frame: "FrameType") -> bool:
    """Return whether code unpickles, or is the function of a pickling library that an unpickler calls.

    A compiled unpickler has no frame; so the code that calls it is recognised by what it names.
    """
    if "_pickle" not in sys.modules:
        return False
    is_library = any(_can_unpickle(frame.f_globals.get(name)) for name in ("load", "loads"))
    frames = [frame, frame.f_back] if is_library and frame.f_back is not None else [frame]
    return any(_can_unpickle(value) for each in frames for value in _list_named_values(each))


def _list_named_values(frame: "FrameType") -> "Iterator[object]":
    """Yield local values, the global ones that code names, and what it names in those that are modules."""
    names = frame.f_code.co_names
    yield from list(frame.f_locals.values())
    for value in [frame.f_globals.get(name) for name in names]:
        yield value
        if type(value) is type(sys):
            yield from [vars(value).get(name) for name in names]


def _can_unpickle(value: object) -> bool:
    """Return whether a value is an unpickler or its function, or a module or class that has one."""
    compiled, plain = sys.modules["_pickle"], sys.modules.get("pickle")
    functions = (compiled.load, compiled.loads)
    kinds = tuple(vars(each)[name] for each, name in ((compiled, "Unpickler"), (plain, "_Unpickler")) if each)
    # By its real type: `isinstance` also asks the value, which may answer as it likes.
    if any(value is function for function in functions) or issubclass(type(value), kinds):
        return True
    if isinstance(value, type):
        # The method of `type`, because a metaclass may have one of its own and run code in it.
        kinds_of_it = type.mro(value)
        if any(each is kind for each in kinds_of_it for kind in kinds):
            return True
        held = [dict(vars(each)) for each in kinds_of_it]
    else:
        held = [vars(value)] if type(value) is type(sys) else []
    found = [each.get(name) for each in held for name in ("load", "loads")]
    return any(each is function for each in found for function in functions)
