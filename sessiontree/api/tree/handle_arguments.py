"""Validation of the arguments for several children, and of images, before they are sent."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.programs import ProgramCall, make_first_call
from sessiontree.contracts.settings.given_values import Edge, Instance, Parts, Text
from sessiontree.contracts.settings.settings import MAX_IMAGES, detect_image_type
from sessiontree.contracts.values.jsonable import JsonValue, to_json_value
from sessiontree.contracts.values.messages import ImageContent

T = TypeVar("T")
TASKS: Final = Edge[tuple[str, ...]](Annotated[Sequence[Text], Parts("texts in a list, not one text")])
_IMAGES: Final = Edge[tuple[ImageContent, ...]](
    Annotated[Sequence[Annotated[ImageContent, Instance("an ImageContent")]], Parts("a list of ImageContent")]
)


def check_values(values: Sequence[T], count: int, name: str, else_give: str = "") -> Sequence[T]:
    """Return values, of which there must be one for each of ``count`` tasks; ``else_give`` fits too.

    Raises:
        ConfigError: their number is not ``count``.
    """
    if len(values) != count:
        raise ConfigError(
            f"{name} is {values!r}; give {else_give}a list with one for each of the {count} tasks"
        )
    return values


def resolve_lifetimes(ttl_s: float | Sequence[float | None] | None, count: int) -> Sequence[float | None]:
    """Return a time to live in seconds, or None, for each of ``count`` tasks.

    Raises:
        ConfigError: their number is not ``count``.
    """
    return (
        check_values(ttl_s, count, "ttl_s", "one value, or ")
        if isinstance(ttl_s, Sequence)
        else [ttl_s] * count
    )


def find_first_call(options: Mapping[str, Any]) -> ProgramCall | None:
    """Return the call of the program that a child is given by the options ``program`` and ``inputs``.

    Raises:
        ConfigError: inputs are given without a program, or have no JSON form.
    """
    program, inputs = options.get("program"), options.get("inputs")
    if program is None and inputs is not None:
        raise ConfigError("inputs are given without a program; name it by program=…, or leave them out")
    return (
        None
        if program is None
        else make_first_call(program, convert_inputs({} if inputs is None else inputs))
    )


def convert_inputs(inputs: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return the inputs of a program as JSON.

    Raises:
        ConfigError: they are nested too deeply, or are no mapping of names.
    """
    try:
        given = to_json_value(inputs)
    except RecursionError as error:
        raise ConfigError("inputs of a program are nested too deeply, or hold themselves") from error
    if not isinstance(given, dict):
        raise ConfigError(f"inputs of a program must be a mapping of names to values, not {inputs!r}")
    return given


def check_images(images: object) -> tuple[ImageContent, ...]:
    """Return the images of a message.

    Raises:
        ConfigError: it is not a list of a few images of a type that models accept, as base64 text.
    """
    given = _IMAGES.take(images, "images")
    if len(given) > MAX_IMAGES:
        raise ConfigError(f"images: {len(given)} are given; a message takes {MAX_IMAGES} at most")
    for each in given:
        try:
            found = detect_image_type(b64decode(each.data, validate=True))
        except (ValueError, TypeError):
            found = None
        if found is None or found != each.mime_type:
            raise ConfigError(
                f"images: one declared as {each.mime_type!r} is not of that type; "
                "give PNG, JPEG, GIF or WebP as base64"
            )
    return given
