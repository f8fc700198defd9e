"""JSON values: one spelling of their text, digests that name a call, and the nearest value JSON allows."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.values.jsonable import (
    JsonValue,
    compute_digest,
    dump_json,
    dump_readable,
    parse_json,
    to_json_value,
)
from sessiontree.testing.strategies import JsonObject, json_objects, json_values

SEARCH = settings(max_examples=500, derandomize=True, database=None, phases=[Phase.generate])
Digest = Callable[[str, Mapping[str, object]], str]
HEX = set("0123456789abcdef")


def turned(value: JsonValue) -> JsonValue:
    """Return an equal value whose objects list their members the other way round."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [turned(item) for item in value]
    return value


def names_a_call(digest: Digest, arguments: JsonObject, other: JsonObject) -> None:
    """Property: a digest is the same whatever the order of members, and another for another call."""
    named = digest("look", arguments)
    assert set(named) <= HEX
    assert len(named) == 64
    again = turned(arguments)
    assert isinstance(again, dict)
    assert digest("look", again) == named
    assert digest("touch", arguments) != named
    assert (digest("look", other) == named) == (
        json.dumps(other, sort_keys=True) == json.dumps(arguments, sort_keys=True)
    )


@given(arguments=json_objects, other=json_objects)
def test_digest_names_tool_and_arguments_not_their_order(arguments: JsonObject, other: JsonObject) -> None:
    """S16: an approval is bound to what is called with what."""
    names_a_call(compute_digest, arguments, other)


@pytest.mark.covers("REL-L1", "REL-L11")
@pytest.mark.parametrize(
    "broken",
    [
        lambda tool, arguments: compute_digest(tool, {"text": dump_json(arguments)}),
        lambda tool, arguments: compute_digest(tool, dict.fromkeys(arguments)),
        lambda tool, arguments: compute_digest("", arguments),
    ],
    ids=["as-written", "names-alone", "no-tool"],
)
def test_digest_property_notices_planted_bugs(broken: Digest) -> None:
    """The property fails where order counts, values do not, or the tool does not."""

    def fails(pair: tuple[JsonObject, JsonObject]) -> bool:
        try:
            names_a_call(broken, *pair)
        except AssertionError:
            return True
        return False

    beside = json_objects.map(lambda named: (named, dict.fromkeys(named, 0)))
    assert find(st.tuples(json_objects, json_objects) | beside, fails, settings=SEARCH)


def test_digest_tells_place_number_and_text_apart() -> None:
    """The place is part of the name, and 1, 1.0, true and "1" are four things."""
    assert compute_digest("look", {}, "/a") != compute_digest("look", {}, "/b")
    assert len({compute_digest("look", {"n": n}) for n in (1, 1.5, True, "1", None)}) == 5


def test_digest_of_a_value_without_json_is_refused() -> None:
    """A number that is not finite has no digest."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        compute_digest("look", {"n": float("nan")})


@given(value=json_values)
def test_text_is_ascii_compact_and_reads_back(value: JsonValue) -> None:
    """P34: whatever is dumped reads back equal, lone surrogates and large integers included."""
    text = dump_json(value)
    assert text.isascii()
    assert repr(json.loads(text)) == repr(value)
    assert repr(json.loads(dump_readable(value))) == repr(value)
    assert text == json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), [{"a": float("nan")}]])
def test_number_that_is_not_finite_is_refused(value: Any) -> None:
    """JSON has no word for it, so nothing is written."""
    for dump in (dump_json, dump_readable):
        with pytest.raises(ValueError, match="not JSON compliant"):
            dump(value)


def test_text_that_speaks_of_nan_is_none() -> None:
    """Only numbers are refused."""
    assert dump_json({"NaN": "Infinity, -Infinity, NaN"}) == '{"NaN":"Infinity, -Infinity, NaN"}'


@pytest.mark.parametrize("value", [b"x", {1}, object(), 1j])
def test_value_without_json_is_refused(value: Any) -> None:
    """Nothing is guessed when text is made."""
    with pytest.raises(TypeError):
        dump_json(value)


def test_value_that_contains_itself_is_refused() -> None:
    """A cycle ends in an error, not in a dead process."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises((ValueError, RecursionError)):
        dump_json(loop)


def test_readable_text_keeps_letters_of_every_script() -> None:
    """A model reads words, not escapes."""
    assert dump_readable({"привіт": "世界 😀"}) == '{"привіт":"世界 😀"}'


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        ((1, (2,)), [1, [2]]),
        ({1: {None: "x"}}, {"1": {"None": "x"}}),
        (float("nan"), "nan"),
        (-float("inf"), "-inf"),
        (b"\x00", "b'\\x00'"),
        ({3, 1}, [1, 3]),
        (range(2), [0, 1]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (1j, "1j"),
        (True, True),
    ],
)
def test_nearest_json_value(value: object, nearest: JsonValue) -> None:
    """What tools return becomes JSON without an error."""
    assert repr(to_json_value(value)) == repr(nearest)


@given(value=json_values)
def test_json_is_its_own_nearest_value(value: JsonValue) -> None:
    """What is JSON already stays as it is."""
    assert repr(to_json_value(value)) == repr(value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "-1e999", "9" * 5_000),
        *("[" * 100_000, "[" * 301 + "]" * 301, '{"a":' * 301 + "1" + "}" * 301, "[" + "[" * 300 + "]" * 301),
    ],
)
@pytest.mark.parametrize("convert", [str, str.encode], ids=["text", "bytes"])
def test_text_of_somebody_else_is_read_or_refused_with_one_error(
    text: str, convert: Callable[[str], Any]
) -> None:
    """Whatever it is, its reader has to expect ``ValueError`` alone."""
    with pytest.raises(ValueError):
        parse_json(convert(text))


@pytest.mark.parametrize("value", [[[]] * 1_000, {"a": {"b": "[" * 1_000}}, "\ud800", 1e308, [{}, {}] * 200])
def test_text_of_somebody_else_is_read_as_it_is(value: Any) -> None:
    """Many brackets are no nesting, nor are those of a text; half a surrogate pair is kept."""
    assert parse_json(dump_json(value)) == value
    deep = "[" * 300 + "]" * 300
    assert dump_json(parse_json(deep)) == deep
