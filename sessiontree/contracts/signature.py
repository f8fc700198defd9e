"""Signatures of functions: their annotations resolved, and the model of their parameters."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from types import FrameType, FunctionType
from typing import Annotated, Any, TypeAlias, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo

from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ConfigError

Function: TypeAlias = Callable[..., Any]

CONTEXT = "ctx"
"""Name of the parameter that receives the call's context."""

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def resolved_hints(function: Function, frame: FrameType | None) -> dict[str, Any]:
    """Return the annotation of every parameter but the context, strings evaluated, in signature order.

    Args:
        function: A Python function.
        frame: The frame that may have defined it; its local names count where it did.

    Raises:
        ConfigError: a parameter has no annotation, one that cannot be evaluated, or no name to call it by.
    """
    plain = cast("FunctionType", inspect.unwrap(function))
    names = _names_around(plain, frame)
    hints: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _BY_NAME:
            raise ConfigError(
                f"parameter {str(parameter)!r} cannot be given by name; write it as an ordinary one"
            )
        if parameter.name != CONTEXT:
            hints[parameter.name] = _hint(parameter, plain, names)
    return hints


def field_names(hints: Mapping[str, Any]) -> dict[str, str]:
    """Return parameter to field of the model; they differ where pydantic has another use for the name."""
    fields: dict[str, str] = {}
    for name in hints:
        field = name
        if name.startswith("_") or hasattr(BaseModel, name):
            field = f"parameter_{name.strip('_')}"
            while field in hints or field in fields.values():
                field += "_"
        fields[name] = field
    return fields


def parameters_model(
    function: Function, hints: Mapping[str, Any], fields: Mapping[str, str], described: Mapping[str, str]
) -> type[BaseModel]:
    """Return the model of a function's parameters; unknown ones are refused.

    Args:
        function: The function, for defaults and the model's name.
        hints: Its resolved annotations.
        fields: Its parameters' fields, from :func:`field_names`.
        described: Descriptions by parameter; one given in ``Annotated`` wins.

    Raises:
        ConfigError: an annotation is none pydantic knows.
    """
    parameters = inspect.signature(function).parameters
    definitions: dict[str, Any] = {}
    for name, hint in hints.items():
        marks: dict[str, Any] = {}
        if fields[name] != name:
            marks["alias"] = name
        if name in described and not _is_described(hint):
            marks["description"] = described[name]
        default = parameters[name].default
        definitions[fields[name]] = (
            cast("Any", Annotated)[hint, Field(**marks)],
            ... if default is inspect.Parameter.empty else default,
        )
    try:
        return create_model(
            f"{function.__name__}_parameters",
            __config__=ConfigDict(extra="forbid", protected_namespaces=()),
            __module__=function.__module__,
            **definitions,
        )
    except (PydanticUserError, PydanticUndefinedAnnotation, TypeError, AttributeError) as error:
        raise ConfigError(f"its parameters make no model: {str(error).partition(chr(10))[0]}") from error


def _hint(parameter: inspect.Parameter, function: FunctionType, names: dict[str, Any]) -> Any:
    if parameter.annotation is parameter.empty:
        raise ConfigError(
            f"parameter {parameter.name!r} has no annotation; write `{parameter.name}: str` or so"
        )

    def holder() -> None:
        """Carry one annotation, so that an error is known to be this parameter's."""

    holder.__annotations__ = {parameter.name: parameter.annotation}
    try:
        hint = get_type_hints(holder, function.__globals__, names, include_extras=True)[parameter.name]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ConfigError(
            f"annotation {parameter.annotation!r} of parameter {parameter.name!r} cannot be read ({error}); "
            "import its names where the function is defined, not only for type checkers"
        ) from error
    if hint is ToolContext:
        raise ConfigError(f"parameter {parameter.name!r} is a ToolContext; call it {CONTEXT!r}")
    return hint


def _names_around(function: FunctionType, frame: FrameType | None) -> dict[str, Any]:
    """Return the names a function sees besides its module's: those of the functions around it."""
    names: dict[str, Any] = {}
    if frame is not None and function.__code__ in frame.f_code.co_consts:
        names |= frame.f_locals
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # empty until the function around has set it
            names[name] = cell.cell_contents
    return names


def _is_described(hint: Any) -> bool:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(mark, FieldInfo) and mark.description for mark in marks)
