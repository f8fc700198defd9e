"""The parameters of a saved program: the JSON Schema of its ``main``, read from the text and never run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from sessiontree.contracts.recorded.programs import SAVED_INPUTS
from sessiontree.contracts.values.jsonable import JsonValue

MAIN: Final = "main"
_PLAIN: Final[Mapping[str, dict[str, Any]]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "list": {"type": "array"},
    "dict": {"type": "object"},
    "Any": {},
}
_HINT: Final = (
    "str, int, float, bool, None, Any, list[…], dict[str, …], Literal[…], or several of them joined by |"
)
_DECLARATIONS: Final = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Assign,
    ast.AnnAssign,
)


class UnfitProgram(Exception):
    """A text can't be a saved program."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        """Where, from 1; None = the text as a whole."""


def parse_program(text: str) -> ast.Module:
    """Return the syntax tree of a saved program.

    Raises:
        UnfitProgram: it is not Python, or does something before its ``main`` is called.
    """
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise UnfitProgram(f"it is not Python: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnfitProgram(f"it can't be parsed: {error}") from None
    for at, each in enumerate(module.body):
        is_docstring = at == 0 and ast.get_docstring(module, clean=False) is not None
        if not is_docstring and not isinstance(each, _DECLARATIONS):
            raise UnfitProgram(
                "it does something outside its functions; keep imports, functions, classes and constants "
                f"there, and the rest in {MAIN}",
                each.lineno,
            )
        for name in _find_bound_names(each):
            if name == SAVED_INPUTS:
                raise UnfitProgram(f"{SAVED_INPUTS} holds its arguments; use another name", each.lineno)
    return module


def _find_bound_names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds, as far as they can be the variable of the arguments."""
    name = getattr(node, "name", None)
    if isinstance(name, str):
        yield name
    for each in ast.walk(node) if isinstance(node, ast.Assign | ast.AnnAssign) else ():
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id


def build_parameters_schema(module: ast.Module) -> dict[str, JsonValue]:
    """Return the JSON Schema of the parameters of a program's ``main``.

    Raises:
        UnfitProgram: it has no such function, or one of its parameters has no type that JSON has.
    """
    found = [each for each in module.body if getattr(each, "name", None) == MAIN]
    if not found:
        raise UnfitProgram(f"it has no function {MAIN}; write `async def {MAIN}(…) -> …:`")
    main = found[-1]
    if len(found) > 1:
        raise UnfitProgram(f"{MAIN} is defined twice; keep one", main.lineno)
    if not isinstance(main, ast.AsyncFunctionDef) or main.decorator_list:
        raise UnfitProgram(f"{MAIN} must be `async def {MAIN}(…)`, without decorators", main.lineno)
    given = main.args
    if given.vararg or given.kwarg or given.posonlyargs:
        raise UnfitProgram(f"{MAIN} takes parameters by name: no *, ** or / among them", main.lineno)
    plain = [None] * (len(given.args) - len(given.defaults)) + list(given.defaults)
    both = [*zip(given.args, plain, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    properties: dict[str, JsonValue] = {each.arg: _build_property(each, default) for each, default in both}
    required: list[JsonValue] = [each.arg for each, default in both if default is None]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _build_property(parameter: ast.arg, default: ast.expr | None) -> dict[str, Any]:
    if parameter.annotation is None:
        raise UnfitProgram(
            f"parameter {parameter.arg} has no type; write `{parameter.arg}: str`", parameter.lineno
        )
    schema = _convert_hint(parameter.annotation)
    if default is None:
        return schema
    try:
        value = ast.literal_eval(default)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        raise UnfitProgram(f"the default of {parameter.arg} must be a plain value", default.lineno) from None
    if not _is_json(value):
        raise UnfitProgram(f"the default of {parameter.arg} must be a value that JSON has", default.lineno)
    return {**schema, "default": value}


def _is_json(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(each) for key, each in value.items())
    return value is None or isinstance(value, str | int | float | bool)


def _convert_hint(hint: ast.expr) -> dict[str, Any]:
    """Return the JSON Schema of an annotation."""
    match hint:
        case ast.Constant(value=None):
            return dict(_PLAIN["None"])
        case ast.Constant(value=str(written)):
            return _convert_hint(_parse_hint(written, hint))
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _PLAIN:
            return dict(_PLAIN[name])
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _join_schemas([_convert_hint(left), _convert_hint(right)])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner) if name in _OF:
            return _OF[name](inner)
    raise UnfitProgram(f"type {ast.unparse(hint)!r} is not one of {_HINT}", hint.lineno)


def _parse_hint(written: str, hint: ast.expr) -> ast.expr:
    try:
        found = ast.parse(written, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        raise UnfitProgram(f"type {written!r} is not Python", hint.lineno) from None
    for each in ast.walk(found):
        if isinstance(each, ast.expr):
            each.lineno = hint.lineno
    return found


def _join_schemas(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = []
    for each in schemas:
        kinds += each["anyOf"] if set(each) == {"anyOf"} else [each]
    return {"anyOf": kinds}


def _build_list(inner: ast.expr) -> dict[str, Any]:
    return {"type": "array", "items": _convert_hint(inner)}


def _convert_dict(inner: ast.expr) -> dict[str, Any]:
    match inner:
        case ast.Tuple(elts=[ast.Name(id="str"), value]):
            return {"type": "object", "additionalProperties": _convert_hint(value)}
    raise UnfitProgram("a dict of JSON has text as keys; write dict[str, …]", inner.lineno)


def _convert_literal(inner: ast.expr) -> dict[str, Any]:
    each = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    try:
        values = [ast.literal_eval(value) for value in each]
    except (ValueError, TypeError, SyntaxError):
        values = [object()]
    if not all(isinstance(value, str | int | bool) for value in values):
        raise UnfitProgram("Literal[…] takes texts, whole numbers, True and False", inner.lineno)
    return {"enum": values}


def _convert_optional(inner: ast.expr) -> dict[str, Any]:
    return _join_schemas([_convert_hint(inner), dict(_PLAIN["None"])])


def _convert_union(inner: ast.expr) -> dict[str, Any]:
    return _join_schemas(
        [_convert_hint(each) for each in (inner.elts if isinstance(inner, ast.Tuple) else [inner])]
    )


_OF: Final[Mapping[str, Callable[[ast.expr], dict[str, Any]]]] = {
    "list": _build_list,
    "dict": _convert_dict,
    "Literal": _convert_literal,
    "Optional": _convert_optional,
    "Union": _convert_union,
}
