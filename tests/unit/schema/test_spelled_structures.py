"""Structures that a model spells as text: read whole or refused, at every depth and for every type."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, create_model

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import RawTool, Tool
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.compiled import CompiledTool, compile_tool


class Edit(BaseModel):
    """A member of a list of objects."""

    old: str
    new: str = ""


KINDS: dict[str, Any] = {
    "texts": list[str],
    "marked texts": list[Annotated[str, Field(description="a path")]],
    "numbers": list[int],
    "objects": list[Edit],
    "lists": list[list[str]],
    "optional": list[str] | None,
    "mapping": dict[str, list[str]],
}
TEXTS = st.text(st.sampled_from("ab\n\t'\"\\\\,[]{}` é"), max_size=6)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "texts": st.lists(TEXTS, min_size=1, max_size=3),
    "marked texts": st.lists(TEXTS, min_size=1, max_size=3),
    "numbers": st.lists(st.integers(-99, 99), min_size=1, max_size=3),
    "objects": st.lists(st.fixed_dictionaries({"old": TEXTS, "new": TEXTS}), min_size=1, max_size=2),
    "lists": st.lists(st.lists(TEXTS, max_size=2), min_size=1, max_size=2),
    "optional": st.lists(TEXTS, min_size=1, max_size=3),
    "mapping": st.dictionaries(TEXTS, st.lists(TEXTS, max_size=2), min_size=1, max_size=2),
}


class Nothing(BaseModel):
    """Parameters that each tool below replaces."""


class Declared(Tool[Nothing]):
    """A tool of a model; it is never run."""

    name = "declared"
    description = "Takes a structure."
    Params: ClassVar[type[BaseModel]] = Nothing

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        return ToolResult()


class Described(RawTool):
    """A tool of a JSON Schema; it is never run."""

    name = "described"
    description = "Takes a structure."

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    async def execute(self, params: dict[str, JsonValue], ctx: ToolContext) -> ToolResult:
        return ToolResult()


def declared(kind: Any) -> CompiledTool:
    """Return a tool with one parameter of a type, and the same parameter one object further in."""
    inner = create_model("Inner", value=(kind, ...))
    model = create_model("Params", value=(kind, Field(default=None)), inner=(inner, Field(default=None)))
    return compile_tool(type("Other", (Declared,), {"Params": model})())


def described(kind: Any) -> CompiledTool:
    """Return the same tool, described by a JSON Schema."""
    part = TypeAdapter(kind).json_schema()
    definitions = part.pop("$defs", {})
    inner = {"type": "object", "properties": {"value": part}}
    properties = {"value": part, "inner": inner}
    return compile_tool(Described({"type": "object", "properties": properties, "$defs": definitions}))


MADE = {kind: (declared(hint), described(hint)) for kind, hint in KINDS.items()}
Take = Callable[[CompiledTool, str, bool], Any]


def taken(tool: CompiledTool, text: str, inside: bool) -> Any:
    """Return the value that a tool would get for a text; None if the call is refused."""
    arguments: dict[str, Any] = {"inner": {"value": text}} if inside else {"value": text}
    try:
        _, final = tool.validate(arguments)
    except ValidationError:
        return None
    return final["inner"]["value"] if inside else final["value"]  # type: ignore[index, call-overload]


SPELLINGS: dict[str, Callable[[Any], str]] = {
    "json": json.dumps,
    "twice": lambda value: json.dumps(json.dumps(value)),
    "fenced": lambda value: f"```json\n{json.dumps(value)}\n```",
    "raw lines": lambda value: json.dumps(value, indent=1).replace("\\n", "\n").replace("\\t", "\t"),
    "commas": lambda value: f"{json.dumps(value)[:-1]},{json.dumps(value)[-1]}",
    "python": repr,
    "spaced": lambda value: f"\n {json.dumps(value)} ",
}


def is_read_or_refused(take: Take) -> None:
    """A spelled value is that value, however damaged; a broken one is refused."""

    @settings(max_examples=120, database=None, derandomize=True, phases=[Phase.generate], deadline=None)
    @given(st.data(), st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(SPELLINGS)), st.booleans())
    def check(data: st.DataObject, kind: str, way: str, inside: bool) -> None:
        value = data.draw(VALUES[kind])
        text = SPELLINGS[way](value)
        for tool in MADE[kind]:
            assert take(tool, text, inside) in (value, None)
            if way in {"json", "twice", "fenced", "spaced"}:
                assert take(tool, text, inside) == value
            cut = text.rstrip()[: data.draw(st.integers(1, max(1, len(text.strip()) - 1)))]
            if not cut.lstrip().startswith(("[", "{", '"', "'", "```")):
                continue
            got = take(tool, cut, inside)
            assert got is None or got == value, cut

    check()


@pytest.mark.slow
@pytest.mark.covers("MDL2")
def test_spelled_structure_is_read_whole_or_refused() -> None:
    """Of every type, at every depth, for tools of Python and of JSON Schema."""
    is_read_or_refused(taken)


def wraps(tool: CompiledTool, text: str, inside: bool) -> Any:
    """Bug: what can't be read becomes a list of that one text."""
    got = taken(tool, text, inside)
    return got if got is not None else taken(tool, json.dumps([text]), inside)


def half(tool: CompiledTool, text: str, inside: bool) -> Any:
    """Bug: a list that breaks off is closed."""
    got = taken(tool, text, inside)
    return got if got is not None else taken(tool, text.rstrip(", ") + "]", inside)


@pytest.mark.parametrize("bug", [wraps, half])
def test_planted_reader_bug_is_found(bug: Take) -> None:
    """The property fails on each broken variant."""
    with pytest.raises(AssertionError):
        is_read_or_refused(bug)


@pytest.mark.covers("MDL2")
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('["a.txt", "b.txt"', None),
        ("['a.txt', 'b.txt']", ["a.txt", "b.txt"]),
        ('["a","b",]', ["a", "b"]),
        ('"[\\"a\\", \\"b\\"]"', ["a", "b"]),
        ("```json\n['a']\n```", ["a"]),
        ("[a.txt, b.txt]", None),
        ('["a"] and more', None),
        ('["a"]["b"]', None),
        ('{"paths": ["a"]}', None),
        ('"a.txt"', None),
        ("'tis", None),
        ("\ufeff [1", None),
        ("a.txt", ["a.txt"]),
        ("a [1].txt", ["a [1].txt"]),
        ("(app)/page.tsx", ["(app)/page.tsx"]),
    ],
)
def test_only_text_that_begins_otherwise_is_wrapped(text: str, meant: list[str] | None) -> None:
    """A path is one path; a broken list is nobody's."""
    for tool in MADE["texts"]:
        assert taken(tool, text, False) == taken(tool, text, True) == meant


def test_raw_line_ends_inside_a_spelled_list_are_read() -> None:
    """As they are in the arguments themselves."""
    for tool in MADE["objects"]:
        assert taken(tool, '[{"old": "a\nb", "new": "c\td"}]', False) == [{"old": "a\nb", "new": "c\td"}]


def test_refusal_says_what_to_send() -> None:
    """Not only that a type is wrong."""
    with pytest.raises(ValidationError, match="can't be read as one: send JSON, not text"):
        MADE["texts"][1].validate({"value": '["a'})
