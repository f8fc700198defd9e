"""Replies held to a schema: the schema takes exactly what the tools take, and every reply is read back."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.jsonable import dump_json, dump_readable
from sessiontree.schema.constrained import (
    MAX_SHAPE_CHARS,
    ConstrainedCall,
    ConstrainedTool,
    ReplyDecoder,
    read_reply,
    reply_schema,
    shape,
)
from sessiontree.schema.dialect import DIALECTS
from sessiontree.schema.provider_schema import clean
from tests.unit.schema.schema_strategies import VALUES, fitting, roots

NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
TEXTS = st.text(max_size=40) | st.text(st.sampled_from('"\\/\n\t é☂🎄{}:'), max_size=20)
Build = Callable[[list[ConstrainedTool], Mapping[str, Any] | None], Any]
Decode = Callable[[list[str]], str]


@st.composite
def shown_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a schema as a model of the dialect is shown it; a plain one where what was drawn is refused."""
    if draw(st.booleans()):
        return draw(recursive_schemas())
    try:
        return clean(draw(roots(refs=True)), DIALECTS["constrained"]).schema
    except ConfigError:
        return {"type": "object"}


@st.composite
def recursive_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a schema that refers to itself; all of them call it A."""
    leaf = draw(st.sampled_from(["string", "integer", "boolean"]))
    nested = {"type": ["array", leaf], "items": {"$ref": "#/$defs/A"}}
    inside = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}
    return {**inside, "$defs": {"A": nested}}


@st.composite
def tools_and_arguments(draw: st.DrawFn) -> tuple[list[ConstrainedTool], list[dict[str, Any]]]:
    """Draw tools of different names, and for each arguments that mostly fit."""
    names = draw(st.lists(NAMES, min_size=1, max_size=2, unique=True))
    schemas = [draw(shown_schemas()) for _ in names]
    values = [drawn_value(draw, schema) for schema in schemas]
    return [ConstrainedTool(*each) for each in zip(names, schemas, strict=True)], values


def drawn_value(draw: Any, schema: dict[str, Any]) -> Any:
    """Draw what mostly fits a schema."""
    if "$defs" in schema:
        return {"a": draw(st.sampled_from(["x", 1, True, [], ["x"], [[2]], None]))}
    return fitting(schema, schema, draw)


def fits(schema: Any, value: Any) -> bool:
    """Whether a value fits in the eyes of an independent validator."""
    return Draft202012Validator(schema).is_valid(value)


def takes_what_the_tools_take(
    build: Build, drawn: tuple[list[ConstrainedTool], list[Any]], result: Mapping[str, Any], value: Any
) -> None:
    """A call fits a reply's schema if and only if its arguments fit the tool's; a result likewise."""
    tools, arguments = drawn
    before = copy.deepcopy([dict(tool.parameters) for tool in tools])
    schema = build(tools, result)
    assert [dict(tool.parameters) for tool in tools] == before
    for tool, given_arguments in zip(tools, arguments, strict=True):
        is_fitting = isinstance(given_arguments, dict) and fits(tool.parameters, given_arguments)
        assert fits(schema, {"tool": tool.name, "arguments": given_arguments}) == is_fitting
    assert fits(schema, {"result": value}) == fits(result, value)
    assert not fits(schema, {"tool": "no such tool", "arguments": {}})
    assert not fits(schema, {"reply": "text"})


@given(tools_and_arguments(), shown_schemas(), st.data())
def test_schema_of_a_reply_takes_what_the_tools_take(
    drawn: tuple[list[ConstrainedTool], list[Any]], result: dict[str, Any], data: st.DataObject
) -> None:
    """References of each schema lead where they led, also with several tools and a result."""
    takes_what_the_tools_take(reply_schema, drawn, result, drawn_value(data.draw, result))


def with_references_left(tools: list[ConstrainedTool], result: Mapping[str, Any] | None) -> Any:
    """Put schemas next to each other without moving what they refer to: the planted bug."""
    variants = [
        {
            "properties": {"tool": {"const": tool.name}, "arguments": {**tool.parameters}},
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    last = {"properties": {"result": result}, "required": ["result"], "additionalProperties": False}
    schemas: list[Any] = [*(tool.parameters for tool in tools), result or {}]
    shared = {name: each for schema in schemas for name, each in schema.get("$defs", {}).items()}
    return {"anyOf": [*variants, last], "$defs": shared}


def test_planted_lost_reference_is_found() -> None:
    """Definitions of one name in two schemas get in each other's way."""

    @settings(max_examples=300, derandomize=True, database=None, phases=[Phase.generate])
    @given(tools_and_arguments(), shown_schemas(), st.data())
    def check(drawn: Any, result: dict[str, Any], data: st.DataObject) -> None:
        takes_what_the_tools_take(with_references_left, drawn, result, drawn_value(data.draw, result))

    with pytest.raises((AssertionError, ExceptionGroup)):
        check()


def test_schema_without_tools_is_the_results_own() -> None:
    """Or none at all, where any text will do; a tool that must be called leaves no other reply."""
    read = ConstrainedTool("read", {"type": "object"})
    assert reply_schema([], None) is None
    assert reply_schema([], {"type": "integer"}) == {"type": "integer"}
    assert not fits(reply_schema([read], None, must_call=True), {"reply": "text"})
    assert fits(reply_schema([read], None), {"reply": "text"})


@given(NAMES, st.dictionaries(st.text(max_size=5), VALUES, max_size=3), TEXTS, VALUES)
def test_reply_is_read_back(name: str, arguments: dict[str, Any], text: str, value: Any) -> None:
    """Calls, texts and results, in any spelling of JSON."""
    for dump in (dump_json, dump_readable, lambda block: json.dumps(block, indent=1)):
        assert read_reply(dump({"tool": name, "arguments": arguments})) == ConstrainedCall(name, arguments)
        assert read_reply(dump({"reply": text})) == text
        found = read_reply(dump({"result": value}))
        assert isinstance(found, str)
        assert json.loads(found) == value


@pytest.mark.parametrize(
    "text",
    [
        *("The answer is 4.", "", "[1]", '{"tool": "read"}', '{"tool": 1, "arguments": {}}'),
        *('{"result": NaN}', '{"result": [1e999]}', '{"result": ' + "9" * 5_000 + "}"),
        '{"result": ' + "[" * 990 + "]" * 990 + "}",
        *('{"reply": 4}', '{"tool": "read", "arguments": {}, "reply": "x"}', '{"a": 1}'),
    ],
)
def test_reply_of_no_known_form_is_its_own_text(text: str) -> None:
    """An endpoint that does not hold the model to the schema loses nothing, and calls nothing."""
    assert read_reply(text) == text


def test_call_that_ends_in_the_middle_keeps_the_text_of_its_arguments() -> None:
    """It is a call, not a text; who takes it in refuses it."""
    cut = '{"tool": "write", "arguments": {"path": "a.txt", "content": "half'
    assert read_reply(cut) == ConstrainedCall("write", '{"path": "a.txt", "content": "half')


def test_call_whose_arguments_are_no_json_keeps_their_text() -> None:
    """A number that is not finite could not be kept; who takes the text in refuses it."""
    assert read_reply('{"tool": "add", "arguments": {"n": NaN}}') == ConstrainedCall("add", '{"n": NaN}}')


@pytest.mark.parametrize("name", [r"a\q", r"a\u12", r"a\u12g4", "a\n", "a\0b", "\x1f", "a\\\n"])
def test_call_that_ends_in_the_middle_with_a_name_that_is_no_json_is_its_own_text(name: str) -> None:
    """A wrong escape or a control character makes it a text like any other."""
    text = f'{{"tool": "{name}", "arguments": {{'
    assert read_reply(text) == text
    assert read_reply(text + "}}") == text + "}}"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), st.booleans())
def test_name_of_a_call_that_ends_in_the_middle_may_be_spelled_in_any_way(
    name: str, ascii_only: bool
) -> None:
    """Escapes are read as those of a whole call."""
    cut_off = f'{{"tool": {json.dumps(name, ensure_ascii=ascii_only)}, "arguments": {{"a'
    assert read_reply(cut_off) == ConstrainedCall(name, '{"a')


def decoded(pieces: list[str]) -> str:
    """Return the text that a decoder gives of pieces."""
    decoder = ReplyDecoder()
    return "".join(text for piece in pieces for text in decoder.take(piece))


def cut(text: str, places: list[int]) -> list[str]:
    """Return a text in pieces, cut at these places."""
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(edges)]


def gives_the_same_text(decode: Decode, text: str, places: list[int]) -> None:
    """However a reply is spelled and cut, its text comes out; of a part of it comes a part."""
    for dump in (dump_json, dump_readable):
        pieces = cut(dump({"reply": text}) + "\n", places)
        assert decode(pieces) == text
        for end in range(len(pieces)):
            assert text.startswith(decode(pieces[:end]))


@given(TEXTS, st.lists(st.integers(0, 400), max_size=60))
def test_text_of_a_reply_is_the_same_however_it_is_cut(text: str, places: list[int]) -> None:
    """Also in the middle of an escape, and between the halves of a character."""
    gives_the_same_text(decoded, text, places)


def decoded_piece_by_piece(pieces: list[str]) -> str:
    """Decode each piece alone: the planted bug."""
    text = ""
    for piece in pieces:
        decoder = ReplyDecoder()
        text += "".join(decoder.take(piece if not text else f'{{"reply":"{piece}'))
    return text


def test_planted_decoder_of_single_pieces_is_found() -> None:
    """An escape that is cut is its downfall."""

    @settings(max_examples=200, derandomize=True, database=None)
    @given(TEXTS, st.lists(st.integers(0, 400), max_size=60))
    def check(text: str, places: list[int]) -> None:
        gives_the_same_text(decoded_piece_by_piece, text, places)

    with pytest.raises((AssertionError, ExceptionGroup)):
        check()


@pytest.mark.parametrize(
    "reply", ['{"tool": "read", "arguments": {"reply": "x"}}', '{"result": "x"}', "text"]
)
def test_decoder_says_nothing_of_other_replies(reply: str) -> None:
    """A call or a result is never shown as the text of a reply."""
    assert decoded(list(reply)) == ""


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string"}, "string"),
        ({"enum": ["a", 1]}, '"a" | 1'),
        ({"type": ["integer", "null"]}, "integer | null"),
        ({"anyOf": [{"type": "integer"}, {"type": "integer", "minimum": 3}]}, "integer"),
        ({"type": "array", "items": {"type": "string"}}, "[string, …]"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]},
            '{"a": string, "b"?: any}',
        ),
        ({"type": "object"}, "object"),
        ({}, "any"),
    ],
)
def test_shape_of_a_schema_is_short(schema: dict[str, Any], text: str) -> None:
    """As a person would write it down for another."""
    assert shape(schema) == text


@given(roots(refs=True))
def test_shape_of_any_schema_is_bounded(schema: dict[str, Any]) -> None:
    """Whatever the schema, it takes few characters."""
    assert 0 < len(shape(schema)) <= MAX_SHAPE_CHARS + 1
