"""Digests of code: of functions, tools and files, as they run. Comments and layout do not count.

A function counts by its compiled form, by its defaults, and by what it has enclosed. So the digest is that of
the code that runs, also where the file was changed since it was imported, and in a notebook.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from pydantic import BaseModel

from sessiontree.contracts.values.python_source import parse_python

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(...))
_COUNTED_BY_RELEASE: Final = sys.stdlib_module_names | {"sessiontree", "sessiontree_tools", "pydantic"}
"""Packages whose classes count by their names: their releases are compared."""
_SHOWN: Final = 12
_DEPTH: Final = 6
_CHUNK: Final = 1 << 20


def digest_of_code(value: object) -> str:
    """Return the digest of a function, of an object with methods, or of plain values."""
    digest = hashlib.sha256()
    for part in _yield_parts(value, _DEPTH, set()):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:_SHOWN]


def digest_of_text(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_SHOWN]


def digest_of_module(path: Path) -> str:
    """Return the digest of a Python file by its syntax; of its bytes if it can't be parsed.

    Raises:
        OSError: it can't be read.
    """
    source = path.read_bytes()
    try:
        text = ast.dump(parse_python(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return hashlib.sha256(source).hexdigest()[:_SHOWN]
    return digest_of_text(text)


def digest_of_template(path: Path) -> str:
    """Return the digest of an archive, or of a directory by the names and contents of its files. Blocks.

    Raises:
        OSError: a file can't be read.
    """
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if not each.is_dir())
    for file in files:
        name = "" if file == path else str(file.relative_to(path))
        digest.update(f"{name}\0{file.stat().st_mode & 0o111:o}\0".encode("utf-8", "surrogatepass"))
        if file.is_symlink():
            digest.update(str(file.readlink()).encode("utf-8", "surrogatepass"))
        elif file.is_file():
            with file.open("rb") as opened:
                while chunk := opened.read(_CHUNK):
                    digest.update(chunk)
    return digest.hexdigest()[:_SHOWN]


def find_file(value: object) -> Path | None:
    """Return the file that defines a function, a class or an object's class; None = it has none."""
    while isinstance(value, partial):
        value = value.func
    code = getattr(getattr(value, "__wrapped__", value), "__code__", None)
    if isinstance(code, CodeType):
        path = Path(code.co_filename)
        return path if path.is_file() else None
    kind = value if isinstance(value, type) else type(value)
    name = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return Path(name) if isinstance(name, str) and Path(name).is_file() else None


def _yield_parts(value: object, depth: int, seen: set[int]) -> Iterator[str]:
    """Yield what counts of a value, as text."""
    if isinstance(value, _PLAIN):
        yield repr(value)
    elif isinstance(value, Path):
        yield value.name
    elif isinstance(value, BaseModel):
        yield f"{type(value).__qualname__} {value.model_dump_json()}"
    # Objects may hold each other in a ring.
    elif depth == 0 or id(value) in seen:
        yield type(value).__qualname__
    elif isinstance(value, CodeType):
        yield from _yield_code_parts(value, depth)
    elif isinstance(value, Mapping | list | tuple | set | frozenset):
        yield from _yield_container_parts(value, depth, seen)
    else:
        seen.add(id(value))
        is_function = isinstance(value, FunctionType | MethodType | partial)
        yield from (_yield_function_parts if is_function else _yield_object_parts)(value, depth - 1, seen)


def _yield_container_parts(value: Iterable[Any], depth: int, seen: set[int]) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            yield repr(key) if isinstance(key, _PLAIN) else type(key).__qualname__
            yield from _yield_parts(value[key], depth - 1, seen)
    elif isinstance(value, set | frozenset):
        yield from sorted("\1".join(_yield_parts(each, depth - 1, seen)) for each in value)
    else:
        for each in value:
            yield from _yield_parts(each, depth - 1, seen)


def _yield_code_parts(code: CodeType, depth: int) -> Iterator[str]:
    yield code.co_code.hex()
    yield " ".join((*code.co_names, *code.co_varnames))
    for each in code.co_consts:
        yield from _yield_parts(each, depth, set())


def _yield_function_parts(value: Any, depth: int, seen: set[int]) -> Iterator[str]:
    if isinstance(value, partial):
        for part in (value.func, value.args, value.keywords):
            yield from _yield_parts(part, depth, seen)
        return
    if isinstance(value, MethodType):
        yield from _yield_parts(value.__func__, depth, seen)
        yield from _yield_parts(value.__self__, depth, seen)
        return
    code = value.__code__
    yield from _yield_code_parts(code, depth)
    yield from _yield_parts(value.__defaults__, depth, seen)
    yield from _yield_parts(value.__kwdefaults__, depth, seen)
    changed = {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_DEREF"}
    for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
        if name not in changed:  # a counter differs with each call, and does not belong to the code
            yield from _yield_cell_parts(cell, depth, seen)
    if not Path(code.co_filename).is_file():  # a notebook's: no file holds what it calls
        for name in code.co_names:
            called = value.__globals__.get(name)
            if isinstance(called, FunctionType) and called.__module__ == value.__module__:
                yield from _yield_parts(called, depth, seen)


def _yield_cell_parts(cell: Any, depth: int, seen: set[int]) -> Iterator[str]:
    try:
        held = cell.cell_contents
    except ValueError:  # it is not filled yet
        return
    if isinstance(held, (*_PLAIN, tuple, frozenset, FunctionType, MethodType, partial, BaseModel)):
        yield from _yield_parts(held, depth, seen)
    else:  # a list or an object may change while it is used
        yield type(held).__qualname__


def _yield_object_parts(value: object, depth: int, seen: set[int]) -> Iterator[str]:
    """Yield the methods of an object's class and the plain members of the object."""
    kind = value if isinstance(value, type) else type(value)
    yield f"{kind.__module__}.{kind.__qualname__}"
    for owner in kind.__mro__[:-1]:
        if owner.__module__.partition(".")[0] in _COUNTED_BY_RELEASE:
            continue
        for name, member in sorted(vars(owner).items()):
            if isinstance(member, FunctionType | staticmethod | classmethod | property):
                yield name
                yield from _yield_parts(_unwrap_member(member), depth, seen)
            elif isinstance(member, _PLAIN) and not name.startswith("__"):
                yield f"{name} {member!r}"
    if value is kind:
        return
    members = (
        {each.name: getattr(value, each.name, None) for each in fields(value)} if is_dataclass(value) else {}
    )
    members |= getattr(value, "__dict__", {})
    for name, member in sorted(members.items()):
        if isinstance(member, (*_PLAIN, tuple, frozenset, FunctionType, partial)) or is_dataclass(member):
            yield name
            yield from _yield_parts(member, depth, seen)


def _unwrap_member(member: Any) -> object:
    if isinstance(member, staticmethod | classmethod):
        return member.__func__
    return member.fget if isinstance(member, property) else member
