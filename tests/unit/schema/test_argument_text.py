"""Argument texts as providers send them: what is put right, what is refused, and at what cost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.schema.argument_text import ParsedArguments, read_arguments
from sessiontree.schema.json_form import MAX_DEPTH

PATIENCE_S = 30.0
"""What is quadratic takes hours over the texts below; what is linear takes a moment, on any machine."""
printable = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["C", "Z"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def objects(texts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects of any JSON value, with these texts as keys and strings."""
    values = st.recursive(
        scalars | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    )
    return st.dictionaries(texts, values, max_size=4)


def spelled(value: Any) -> str:
    """Return a value by its spelling, so that 1, 1.0 and True differ; keys in order."""
    return repr(value)


@given(objects(st.text()), st.sampled_from([None, 2]), st.booleans(), st.sampled_from(["", " \n", "\ufeff"]))
def test_json_is_read_as_it_is(
    value: dict[str, Any], indent: int | None, ascii_only: bool, around: str
) -> None:
    """Whatever the layout, and whether letters are escaped or not; nothing counts as closed."""
    text = around + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + around
    found = read_arguments(text)
    assert found is not None
    assert (spelled(found.values), found.closed) == (spelled(value), False)


@given(objects(printable))
def test_python_literal_is_read(value: dict[str, Any]) -> None:
    """Single quotes, True, False and None."""
    found = read_arguments(repr(value))
    assert found is not None
    assert (spelled(found.values), found.closed) == (spelled(value), False)


@given(objects(st.text(st.sampled_from('ab"\\\n\t\x01'))))
def test_raw_control_characters_trailing_commas_and_what_is_around(value: dict[str, Any]) -> None:
    """One object, sent in the ways of careless providers."""
    plain = json.dumps(value)
    raw = (
        plain.replace("\\\\", "\\u005c").replace("\\n", "\n").replace("\\t", "\t").replace("\\u0001", "\x01")
    )
    comma = json.dumps({**value, "z": [1]})[:-2] + ",],}"
    assert read_arguments(raw) == ParsedArguments(value)
    assert read_arguments(comma) == ParsedArguments({**value, "z": [1]})
    for text in (
        f"```json\n{plain}\n```",
        f"```\n{raw}```",
        f"```json\n{plain}",
        json.dumps(plain),
        plain + plain,
        f"{plain} {plain}\n{plain}",
        "{}" + plain,
        plain + "{}",
    ):
        assert read_arguments(text) == ParsedArguments(value), text


@given(objects(st.text()), st.sampled_from([None, 2]), st.data())
def test_text_cut_anywhere_holds_no_half_value(
    value: dict[str, Any], indent: int | None, data: st.DataObject
) -> None:
    """It is read only where whole members are left, each as it was meant, and says that it was cut."""
    whole = json.dumps(value, indent=indent)
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    found = read_arguments(cut)
    ends = [json.dumps(dict([*value.items()][:count]), indent=indent)[:-1] for count in range(1, 5)]
    is_whole_member = cut.rstrip() in {end.rstrip() for end in ends[: len(value)]}
    if found is None:
        assert not is_whole_member or cut[-1] in "0123456789", "only a number may have more digits"
        return
    assert is_whole_member
    assert found.closed
    assert spelled(found.values) == spelled(dict([*value.items()][: len(found.values)]))


@given(st.text() | st.text(st.sampled_from("{}[]\"',:\\u0d8 tTrueN`\n1e-.")))
def test_no_text_is_too_odd(text: str) -> None:
    """An object or None, never an error; and an object has a JSON form."""
    found = read_arguments(text)
    if found is not None:
        assert isinstance(found.values, dict)
        json.dumps(found.values, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ('""', {}),
        ("{}", {}),
        ("{}{}", {}),
        (r'{"regex": "\d+\'"}', {"regex": r"\d+'"}),
        (r'{"a": "\ud83d\ude00", }', {"a": "\U0001f600"}),
        (r'{"a": "\ud83d", }', {"a": "\ud83d"}),
        ('{"n": 9007199254740993,}', {"n": 9007199254740993}),
        ('{"n": -1.5e2,}', {"n": -150.0}),
        ("{'a': 'it\\'s', 'b': \"x\"}", {"a": "it's", "b": "x"}),
    ],
)
def test_what_is_read(text: str, expected: dict[str, Any]) -> None:
    """Each as a provider was seen to send it."""
    assert read_arguments(text) == ParsedArguments(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"path": "/srv/user"', {"path": "/srv/user"}),
        ('{"a": [1, {"b": "x"}] \n', {"a": [1, {"b": "x"}]}),
        ('{"a": {"b": 12}', {"a": {"b": 12}}),
        ('{"a": 12 ', {"a": 12}),
        ('{"a": true, "b": null ', {"a": True, "b": None}),
    ],
)
def test_only_the_last_brace_may_be_missing(text: str, expected: dict[str, Any]) -> None:
    """All values are whole then."""
    assert read_arguments(text) == ParsedArguments(expected, closed=True)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        " { ",
        "{'pa",
        '{"path"',
        '{"path":',
        "{}{",
        '{"a": 1}{',
        '{"path": "/srv/us',
        '{"path": "a", "con',
        '{"path": "a", "content"',
        '{"path": "a", "content":',
        '{"path": "a",',
        '{"count": 12',
        '{"sure": tru',
        '{"names": ["a", "b"',
        '{"names": ["a", "b',
        '{"a": {"b": "x"',
        '{"a": "x\\',
        '{"a": "x\\u00',
        '{"a": "x\\"',
        "```json",
        "```\n```",
        '"{"',
        "hello",
        "[]",
        '[{"a": 1}]',
        "1",
        "true",
        '{"a": 1} {"a": 2}',
        '{"a": 1} {"a": true}',
        '{"a": 1}}',
        '{"a": 1} and so on',
        'Sure! {"a": 1}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 1 "b": 2}',
        '{"a" 1}',
        "{a: 1}",
        '{"a": tru}',
        '{"a": 01,}',
        '{"a": ' + "1" * 5_000 + "}",
        '"\\"twice\\""',
        json.dumps(json.dumps(json.dumps({"a": 1}))),
        '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1),
        '{"a":' * (MAX_DEPTH + 1),
        "[" * 100_000,
    ],
)
def test_what_is_not_guessed(text: str) -> None:
    """No object, not even with good will."""
    assert read_arguments(text) is None


def test_as_deep_as_tools_take() -> None:
    """The deepest object that validation takes is read, with its last brace or without."""
    text = '{"a":' * MAX_DEPTH + "1"
    whole = read_arguments(text + "}" * MAX_DEPTH)
    assert whole is not None
    assert not whole.closed
    assert read_arguments(text + "}" * (MAX_DEPTH - 1)) == ParsedArguments(whole.values, closed=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "{}" * 100_000,
        '{"a": 1}' * 25_000,
        '{"a": "' + "\\q" * 100_000,
        '{"a": "' + "\\u00" * 50_000,
        '{"a": [' + "'x'," * 50_000,
        '{"a": [' + "1, " * 50_000 + "]" + " " * 50_000 + "x",
        "```" * 60_000,
        '{"a": "' + "\n" * 200_000 + '",}',
        "[" * 200_000,
        '{"a":' * 40_000,
        "1" * 200_000,
        '"' * 200_000,
    ],
)
async def test_time_is_linear(text: str) -> None:
    """A thousand times what a quadratic reader would get through in the time given."""
    async with asyncio.timeout(PATIENCE_S):
        found = await asyncio.to_thread(read_arguments, text)
    assert found is None or isinstance(found.values, dict)
