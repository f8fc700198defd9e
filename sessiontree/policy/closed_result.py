"""Results without free text: what a Worker may tell its parent without tainting it.

A form is closed if every leaf of a result's schema is a listed value, a truth value, a number, or a date, a
time or a duration. The decision rests on the schema, which the parent wrote; the text of the Worker has no
part in it. A value is then built again from the form: each text in it is the schema's own, or a date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from math import isfinite
from typing import Final, Protocol, TypeAlias

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.pointer import make_json_pointer
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_BITS: Final = 512
"""Most bits that a closed result may carry; a list of letters would spell a message otherwise."""
LARGEST_INTEGER: Final = 2**53 - 1
"""Largest whole number without bounds in its schema: beyond it, digits could spell a text."""
_NUMBER_BITS: Final = 64
_DIGITS: Final = "[0-9]{1,6}"
_CLOCK: Final = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_DATE: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(_CLOCK)
_DATE_TIME: Final = re.compile(f"({_DATE.pattern})[Tt]{_CLOCK}")
_DURATION: Final = re.compile(
    f"P(?=.)(?:{_DIGITS}Y)?(?:{_DIGITS}M)?(?:{_DIGITS}W)?(?:{_DIGITS}D)?"
    rf"(?:T(?=.)(?:{_DIGITS}H)?(?:{_DIGITS}M)?(?:{_DIGITS}(?:\.[0-9]{{1,9}})?S)?)?"
)


@dataclass(frozen=True, slots=True)
class ClosedResult:
    """A form without free text.

    Args:
        bits: Upper bound of what one value can carry, in bits.
        rebuild: Returns a value built again from the form; raises ValueError if the value does not fit it.
    """

    bits: int
    rebuild: Callable[[JsonValue], JsonValue]


@dataclass(frozen=True, slots=True)
class OpenResult:
    """A form that can hold free text, or too much of anything else.

    Args:
        place: JSON pointer to the place in the value.
        reason: What can be there.
    """

    place: str
    reason: str


def derive_closed_form(schema: JsonValue) -> ClosedResult | OpenResult:
    """Return the form of the values that fit a schema.

    Keywords that only restrict a value are left out of account, so a form may allow more than its schema;
    check values against the schema, too.

    Args:
        schema: A JSON Schema whose definitions are written out; a reference that remains counts as open.
    """
    try:
        form = _build_form(schema, ())
    except FreeText as found:
        return OpenResult(found.place, found.reason)
    # The schema may come from a model; what is too deep to be judged counts as open.
    except RecursionError:
        return OpenResult("", "is nested too deep")
    if form.bits > MAX_BITS:
        reason = (
            f"can carry {form.bits} bits, more than {MAX_BITS}; set bounds of numbers, or a smaller maxItems"
        )
        return OpenResult("", reason)
    return ClosedResult(form.bits, form.rebuild)


class FreeText(Exception):
    """A schema allows free text.

    Args:
        path: Keys and indexes to the place in the value.
        reason: What can be there.
    """

    def __init__(self, path: _Path, reason: str) -> None:
        super().__init__(reason)
        self.place = make_json_pointer(*path)
        self.reason = reason


_Path: TypeAlias = tuple[str | int, ...]


class ClosedForm(Protocol):
    """The form of some values."""

    @property
    def bits(self) -> int:
        """Upper bound of what a value can carry."""
        ...

    def rebuild(self, value: JsonValue) -> JsonValue:
        """Return the value built again.

        Raises:
            ValueError: it does not fit.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClosedValues:
    """One of listed values; the schema's own is returned."""

    values: Sequence[JsonValue]

    @property
    def bits(self) -> int:
        """Which of them it is."""
        return _count_choice_bits(len(self.values))

    def rebuild(self, value: JsonValue) -> JsonValue:
        """Return the listed value that is equal."""
        for each in self.values:
            # The schema's own value is returned: 1 and 1.0 are equal, and which of them it is could carry a
            # bit.
            if _is_same(each, value):
                return each
        raise ValueError("does not fit: it is not one of the listed values")


@dataclass(frozen=True, slots=True)
class ClosedNumber:
    """A number; whole ones have bounds."""

    is_whole: bool
    least: float
    most: float

    @property
    def bits(self) -> int:
        """Those of a float, or of a whole number within its bounds."""
        if not self.is_whole:
            return _NUMBER_BITS
        return max(0, int(self.most) - int(self.least) + 1).bit_length()

    def rebuild(self, value: JsonValue) -> JsonValue:
        """Return a plain number."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("does not fit: it is not a number")
        if isinstance(value, float) and not isfinite(value):
            raise ValueError("does not fit: it is not a finite number")
        # One spelling for each whole number, for the same reason.
        plain = int(value) if abs(value) <= LARGEST_INTEGER and value == int(value) else value
        if isinstance(plain, float) and not self.is_whole:
            return float(plain)
        if not isinstance(plain, int) or not self.least <= plain <= self.most:
            raise ValueError("does not fit: it is not a whole number within the bounds")
        return plain


@dataclass(frozen=True, slots=True)
class ClosedText:
    """A text of which a function knows whether it is a date or the like."""

    is_fit: Callable[[str], bool]
    bits: int

    def rebuild(self, value: JsonValue) -> JsonValue:
        """Return the text."""
        if not isinstance(value, str) or not self.is_fit(value):
            raise ValueError("does not fit: it is not of its format")
        return value


@dataclass(frozen=True, slots=True)
class ClosedUnion:
    """One of several forms."""

    members: Sequence[ClosedForm]

    @property
    def bits(self) -> int:
        """Those of the largest, and which it is."""
        return max((each.bits for each in self.members), default=0) + _count_choice_bits(len(self.members))

    def rebuild(self, value: JsonValue) -> JsonValue:
        """Return the value as the first form that fits builds it."""
        for each in self.members:
            try:
                return each.rebuild(value)
            except ValueError:
                continue
        raise ValueError("does not fit: it is of no listed form")


@dataclass(frozen=True, slots=True)
class ClosedList:
    """A list: forms of the first items, then one of all others, and how many there are."""

    first: Sequence[ClosedForm]
    rest: ClosedForm | None
    most: int

    @property
    def bits(self) -> int:
        """Those of all items, and their number."""
        further = max(0, self.most - len(self.first)) * (0 if self.rest is None else self.rest.bits)
        return sum(each.bits for each in self.first) + further + _count_choice_bits(self.most + 1)

    def rebuild(self, value: JsonValue) -> JsonValue:
        """Return a list of the items built again."""
        if not isinstance(value, list) or len(value) > self.most:
            raise ValueError("does not fit: it is not a list, or too long")
        forms = [*self.first[: len(value)], *[self.rest] * (len(value) - len(self.first))]
        found: list[JsonValue] = []
        for form, item in zip(forms, value, strict=True):
            if form is None:
                raise ValueError("does not fit: the list is too long")
            found.append(form.rebuild(item))
        return found


@dataclass(frozen=True, slots=True)
class ClosedObject:
    """An object with named properties and no others."""

    properties: Mapping[str, ClosedForm]
    required: frozenset[str]

    @property
    def bits(self) -> int:
        """Those of all properties, and which optional ones are there."""
        optional = len(self.properties.keys() - self.required)
        return sum(each.bits for each in self.properties.values()) + optional

    def rebuild(self, value: JsonValue) -> JsonValue:
        """Return the properties in the schema's order."""
        if not isinstance(value, dict) or not value.keys() <= self.properties.keys():
            raise ValueError("does not fit: it is not an object of these properties")
        # In the schema's order: the order in which a Worker names properties could spell a message.
        return {name: form.rebuild(value[name]) for name, form in self.properties.items() if name in value}


def _build_form(schema: JsonValue, path: _Path) -> ClosedForm:
    """Return a closed form of all values that fit.

    Every keyword of a schema must hold, so it is enough that one of them is closed by itself.

    Raises:
        FreeText: none is.
    """
    if schema is False:
        return ClosedValues(())
    if not isinstance(schema, dict):
        raise FreeText(path, "may be anything")
    # Definitions are written out before, so a reference that remains leads back to itself: how much such a
    # value can carry has no bound.
    if any("ref" in keyword.casefold() and keyword.startswith("$") for keyword in schema):
        raise FreeText(path, "is of a form that contains itself")
    if "const" in schema:
        return ClosedValues((schema["const"],))
    listed = schema.get("enum")
    if isinstance(listed, list):
        return ClosedValues(tuple(listed))
    reasons: list[FreeText] = []
    for way in (_build_typed, _build_union, _build_intersection):
        try:
            return way(schema, path)
        except FreeText as found:
            reasons.append(found)
    raise max(reasons, key=lambda each: len(each.place))


def _build_typed(schema: Mapping[str, JsonValue], path: _Path) -> ClosedForm:
    told = schema.get("type")
    kinds = told if isinstance(told, list) else [told]
    forms = [_build_kind(kind, schema, path) for kind in kinds]
    return forms[0] if len(forms) == 1 else ClosedUnion(forms)


def _build_kind(kind: JsonValue, schema: Mapping[str, JsonValue], path: _Path) -> ClosedForm:
    match kind:
        case "null":
            return ClosedValues((None,))
        case "boolean":
            return ClosedValues((False, True))
        case "integer" | "number":
            return _build_number(schema, is_whole=kind == "integer")
        case "string":
            return _build_text(schema, path)
        case "array":
            return _build_list(schema, path)
        case "object":
            return _build_object(schema, path)
    raise FreeText(path, "may be anything: it has no type")


def _build_number(schema: Mapping[str, JsonValue], *, is_whole: bool) -> ClosedForm:
    lower = [*_list_numbers(schema, "minimum", "exclusiveMinimum"), -LARGEST_INTEGER]
    upper = [*_list_numbers(schema, "maximum", "exclusiveMaximum"), LARGEST_INTEGER]
    return ClosedNumber(is_whole, max(lower), min(upper))


def _list_numbers(schema: Mapping[str, JsonValue], *keywords: str) -> list[float]:
    found = [schema.get(keyword) for keyword in keywords]
    return [each for each in found if isinstance(each, int | float) and not isinstance(each, bool)]


def _build_text(schema: Mapping[str, JsonValue], path: _Path) -> ClosedForm:
    known = _FORMATS.get(str(schema.get("format")))
    if known is None:
        raise FreeText(
            path, "is a text; list its values (enum), or use the format date, time, date-time or duration"
        )
    return known


def _build_list(schema: Mapping[str, JsonValue], path: _Path) -> ClosedForm:
    told = schema.get("prefixItems", [])
    first = [_build_form(each, (*path, at)) for at, each in enumerate(told if isinstance(told, list) else [])]
    most = schema.get("maxItems")
    bound = int(most) if isinstance(most, int | float) and not isinstance(most, bool) else None
    items = schema.get("items", True)
    if items is False or (bound is not None and bound <= len(first)):
        return ClosedList(first, None, len(first) if bound is None else min(bound, len(first)))
    rest = _build_form(items, (*path, len(first)))
    if bound is None and schema.get("uniqueItems") is True and isinstance(rest, ClosedValues):
        bound = len(first) + len(rest.values)
    if bound is None:
        raise FreeText(path, "is a list of any length; give it maxItems")
    return ClosedList(first, rest, bound)


def _build_object(schema: Mapping[str, JsonValue], path: _Path) -> ClosedForm:
    if schema.get("additionalProperties") is not False or schema.get("patternProperties"):
        raise FreeText(path, "may have properties of any name; set additionalProperties to false")
    told, needed = schema.get("properties", {}), schema.get("required", [])
    properties = told if isinstance(told, dict) else {}
    forms = {name: _build_form(part, (*path, name)) for name, part in properties.items()}
    return ClosedObject(forms, frozenset(map(str, needed if isinstance(needed, list) else ())))


def _build_union(schema: Mapping[str, JsonValue], path: _Path) -> ClosedForm:
    reason = FreeText(path, "may be anything: it has no type")
    for keyword in ("anyOf", "oneOf"):
        members = schema.get(keyword)
        if isinstance(members, list):
            try:
                return ClosedUnion([_build_form(each, path) for each in members])
            except FreeText as found:
                reason = found
    raise reason


def _build_intersection(schema: Mapping[str, JsonValue], path: _Path) -> ClosedForm:
    reason = FreeText(path, "may be anything: it has no type")
    members = schema.get("allOf")
    for each in members if isinstance(members, list) else ():
        try:
            return _build_form(each, path)
        except FreeText as found:
            reason = found
    raise reason


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    found = _DATE_TIME.fullmatch(text)
    return found is not None and _is_date(found.group(1))


_FORMATS: Final[Mapping[str, ClosedForm]] = {
    "date": ClosedText(_is_date, 22),
    "time": ClosedText(lambda text: _TIME.fullmatch(text) is not None, 64),
    "date-time": ClosedText(_is_date_time, 88),
    "duration": ClosedText(lambda text: _DURATION.fullmatch(text) is not None, 171),
}
"""Texts of which all are known; upper bounds of their bits, by the digits that they may have."""


def _count_choice_bits(number: int) -> int:
    return 0 if number < 2 else (number - 1).bit_length()


def _is_same(listed: JsonValue, value: JsonValue) -> bool:
    """Return whether two values are equal as JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(listed, bool) or isinstance(value, bool):
        return listed is value
    if isinstance(listed, list):
        pairs = (
            zip(listed, value, strict=True) if isinstance(value, list) and len(value) == len(listed) else None
        )
        return pairs is not None and all(_is_same(*pair) for pair in pairs)
    if isinstance(listed, dict):
        is_like = isinstance(value, dict) and value.keys() == listed.keys()
        return is_like and all(_is_same(each, value[name]) for name, each in listed.items())  # type: ignore[index, call-overload]
    return listed == value
