"""The one edge for what a program or a file gives: the type of a value says what is wanted, in its own words.

A kind of value is an ``Annotated`` type with one of the marks below, and is said once. Pydantic checks it. A
value that does not fit is one ConfigError, which says which value it is, what was given and what to give.
Values are taken as they are: text that looks like a number is text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import TypedDict

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.settings import CHOICE, GIVE, describe_faults, suggest_names

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


class Give:
    """Marks a type with what an error asks for: ``<name> is <value>; give <words>``."""

    def __init__(self, words: str) -> None:
        self._context: dict[str, str | int | float] = {"words": words}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the type's schema with these words for every fault."""
        return self.around(handler(source))

    def around(self, inner: CoreSchema) -> CoreSchema:
        """Return a schema with these words for every fault."""
        return core_schema.custom_error_schema(
            inner, custom_error_type=GIVE, custom_error_message="{words}", custom_error_context=self._context
        )

    def fault(self) -> PydanticCustomError:
        """Return the fault of a value, for validators."""
        return PydanticCustomError(GIVE, "{words}", self._context)


class Instance(Give):
    """Marks a class, or a union of classes: the value is an instance, and its content is not looked at."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that only looks at the class."""
        each_one = get_args(source) if get_origin(source) in {Union, UnionType} else (source,)
        classes = tuple(get_origin(each) or each for each in each_one)
        return self.around(core_schema.is_instance_schema(classes))


class Parts(Give):
    """Marks a list or a mapping, or None besides: its parts have words of their own.

    A single text is never a list of texts.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema of the parts, in which these words are for the whole alone."""
        whole = source
        takes_none = NoneType in get_args(source)
        if takes_none:
            whole = next(each for each in get_args(source) if each is not NoneType)
        part = handler.generate_schema(get_args(whole)[-1])
        if issubclass(get_origin(whole), Mapping):
            schema = self._add_check(
                lambda value: isinstance(value, Mapping),
                dict,
                core_schema.dict_schema(core_schema.str_schema(), part),
            )
        else:
            schema = self._add_check(_is_listed, tuple, core_schema.tuple_variable_schema(part))
        return core_schema.nullable_schema(schema) if takes_none else schema

    def _add_check(
        self, fits: Callable[[object], bool], made: Callable[[Any], object], parts: CoreSchema
    ) -> CoreSchema:
        def check(value: Any) -> object:
            if not fits(value):
                raise self.fault()
            return made(value)

        return core_schema.no_info_before_validator_function(check, parts)


def _is_listed(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | bytearray | Mapping)


class Choice:
    """Marks a ``Literal`` of texts, or None besides, or a StrEnum: the error names all and the nearest."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that takes these texts."""
        is_enum = isinstance(source, type) and issubclass(source, StrEnum)
        takes_none = NoneType in get_args(source)
        literal = next((each for each in get_args(source) if get_origin(each) is Literal), source)
        known = tuple(source) if is_enum else get_args(literal)
        listed = ", ".join((*known, "None") if takes_none else known)

        def check(value: Any) -> Any:
            if (value is None and takes_none) or (isinstance(value, str) and value in known):
                return value
            raise PydanticCustomError(CHOICE, "{known}", {"known": listed})

        return core_schema.no_info_plain_validator_function(check)


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("blank")
    return text


Text: TypeAlias = Annotated[str, AfterValidator(_check_not_blank), Give("text with something in it")]
Toggle: TypeAlias = Annotated[bool, Give("True or False")]
Finite: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A number above 0; what has it as a part says of what."""
Lifetime: TypeAlias = Annotated[Finite | None, Give("seconds above 0, or None for the default")]
TimeLimit: TypeAlias = Annotated[Finite | None, Give("seconds above 0, or None for no limit")]
Natural: TypeAlias = Annotated[int, Field(ge=0), Give("a whole number, at least 0")]
Positive: TypeAlias = Annotated[int, Field(ge=1), Give("a whole number, at least 1")]


class Edge(Generic[T]):
    """One kind of value, checked by itself."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    # At the first use, because building it takes long and most programs use few kinds.
    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(self._kind)

    def take(self, value: object, name: str) -> T:
        """Return a value that fits.

        Args:
            value: What is given.
            name: Names it in the error.

        Raises:
            ConfigError: it does not fit; says what to give.
        """
        try:
            return self._adapter.validate_python(value, strict=True)
        except ValidationError as error:
            raise ConfigError(describe_faults(error, hidden=False, whole=name)) from None


TEXT: Final = Edge[str](Text)
ANY_TEXT: Final = Edge[str](Annotated[str, Give("text")])
NATURAL: Final = Edge[int](Natural)


def take_members(given: Mapping[str, object], kinds: type, place: str = "") -> dict[str, Any]:
    """Return those of several values that have a mark, as they fit.

    Args:
        given: The values by name.
        kinds: A TypedDict or another class with the same names; those without a mark are passed over.
        place: The beginning of the error.

    Raises:
        ConfigError: one does not fit; says which and what to give.
    """
    try:
        return _make_adapter(kinds).validate_python(given, strict=True)
    except ValidationError as error:
        raise ConfigError(f"{place}{describe_faults(error, hidden=False)}") from None


@cache
def _make_adapter(kinds: type) -> TypeAdapter[dict[str, Any]]:
    hints = get_type_hints(kinds, include_extras=True)
    marked = {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}
    return TypeAdapter(cast("Any", TypedDict)(kinds.__name__, marked, total=False))


def check_fields(value: DataclassInstance, place: str = "") -> None:
    """Check the fields of a dataclass that have a mark, and keep them as they fit.

    Args:
        value: The object, while it is made.
        place: The beginning of the error.

    Raises:
        ConfigError: one does not fit; says which and what to give.
    """
    given = {name: getattr(value, name) for name in value.__dataclass_fields__}
    for name, plain in take_members(given, type(value), place).items():
        object.__setattr__(value, name, plain)


def check_names(given: Iterable[str], known: Collection[str], place: str) -> None:
    """Refuse names that are not known.

    Args:
        given: The names.
        known: Those there are.
        place: Names the call or the file in the error.

    Raises:
        ConfigError: one is unknown; names it and the nearest one.
    """
    for name in given:
        if name not in known:
            raise ConfigError(f"{place} takes no option {name!r}; {suggest_names(name, known)}")


def check_options(given: Mapping[str, object], options: type, call: str, *parameters: str) -> dict[str, Any]:
    """Return the keywords of a call that have a mark; a type checker finds most of their faults too.

    Args:
        given: The keywords.
        options: The TypedDict of those it takes.
        call: Names the call in the error.
        parameters: Its other parameters, which may be meant.

    Raises:
        ConfigError: one is unknown, or its value does not fit; names it.
    """
    known: frozenset[str] = options.__optional_keys__  # type: ignore[attr-defined]  # of TypedDicts
    if not known.issuperset(given):
        check_names(given, {*known, *parameters}, call)
    return take_members(given, options) if given else {}


def take_settings(read: Callable[[], T], place: str) -> T:
    """Return settings that a file or a mapping holds.

    Args:
        read: Validates them.
        place: Names the file or the mapping; the error shows none of its values, which may be secret.

    Raises:
        ConfigError: a setting is unknown or wrong; names each.
    """
    try:
        return read()
    except ValidationError as error:  # its cause would show values
        raise ConfigError(f"{place}{describe_faults(error)}") from None
