"""What programs write as settings: immutable, without room for a name nobody reads.

A wrong setting is a ConfigError that names the setting and, where a name is unknown, the nearest one.
``model_validate`` raises pydantic's own error with the same words, for whoever reads settings from a file.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.suggestion import suggestion

SHOWN_CHARS = 60


class StrictSettings(BaseModel):
    """Base of every public configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **given: Any) -> None:
        """Check what is given.

        Raises:
            ConfigError: a setting is unknown or wrong; names each.
        """
        try:
            super().__init__(**given)
        except ValidationError as error:
            hidden = type(self).model_config.get("hide_input_in_errors", False)
            raise ConfigError(f"{type(self).__name__}: {faults_of(error, hidden=hidden)}") from None

    # Validating a mapping goes past __init__, so that an error inside another setting keeps its place.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="wrap")
    @classmethod
    def _name_the_nearest(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Say of an unknown name which one was probably meant."""
        try:
            return handler(given)
        except ValidationError as error:
            raise ValidationError.from_exception_data(
                error.title,
                [_told_again(cls, each) for each in error.errors(include_url=False)],
                hide_input=cls.model_config.get("hide_input_in_errors", False),
            ) from None


def faults_of(error: ValidationError, *, hidden: bool = True) -> str:
    """Return what is wrong with settings, each fault with its place; no address, and no value if hidden."""
    found = []
    for each in error.errors(include_url=False):
        place = ".".join(map(str, each["loc"])) or "the whole"
        is_name = each["type"] == _UNKNOWN
        shown = "" if hidden or is_name or each["type"] == "missing" else f" (given: {_short(each['input'])})"
        found.append(f"{place}: {each['msg']}{shown}")
    return "; ".join(found)


_UNKNOWN = "unknown_setting"


def _told_again(settings: type[BaseModel], error: ErrorDetails) -> InitErrorDetails:
    """Return one fault as it was, or with the nearest name where a setting of this model is unknown."""
    kind, said, place = error["type"], error["msg"].removeprefix("Value error, "), error["loc"]
    if kind == "extra_forbidden" and len(place) == 1:
        kind, said = _UNKNOWN, _advice(settings, str(place[0]))
    # As an error of ours it needs no context of pydantic's, and leads to no page of pydantic's.
    told = PydanticCustomError(kind, "{said}", {"said": said})
    return InitErrorDetails(type=told, loc=place, input=error["input"])


def _advice(settings: type[BaseModel], name: str) -> str:
    for outer, field in settings.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and name in inner.model_fields:
            return (
                "no setting is called that here; write "
                f"{settings.__name__}({outer}={inner.__name__}({name}=…))"
            )
    aliases = (field.alias for field in settings.model_fields.values())
    known = (alias for alias in aliases if alias is not None)
    names = {*settings.model_fields, *known} if "_" not in name else settings.model_fields
    return f"no setting is called that; {suggestion(name, names)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
