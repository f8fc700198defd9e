"""Schemas as models see them, derived from models and from raw schemas."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import (
    AllowEmpty,
    RawTool,
    Stripped,
    Tool,
    optional_string_enum,
    string_enum,
)
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.derive import compute_schema_digest, derive_schema
from sessiontree.schema.keywords import Schema

Derive = Callable[[Tool[Any]], Schema]
KEYWORD_NAMES = (
    "format",
    "pattern",
    "type",
    "properties",
    "title",
    "default",
    "items",
    "enum",
    "anyOf",
    "required",
)


class Declared(Tool[BaseModel]):
    """A tool of any parameters; it is never run."""

    name = "declared"
    description = "Declares parameters."

    async def execute(self, params: BaseModel, ctx: ToolContext) -> ToolResult:
        return ToolResult()


class Raw(RawTool):
    """A tool of any schema; it is never run."""

    name = "raw"
    description = "Declares a schema."

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    async def execute(self, params: dict[str, JsonValue], ctx: ToolContext) -> ToolResult:
        return ToolResult(output=params)


def tool_of(model: type[BaseModel]) -> Tool[BaseModel]:
    """Return a tool with these parameters."""
    made: Tool[BaseModel] = type("Declared", (Declared,), {"Params": model})()
    return made


class Unit(StrEnum):
    """What a number counts."""

    LINES = "lines"
    BYTES = "bytes"


class Range(BaseModel):
    """A part of a file."""

    start: int = Field(description="First one.")
    unit: Unit = Unit.LINES


class Node(BaseModel):
    """A node of a tree."""

    title: str
    children: list[Node] = []


@pytest.mark.covers("A4", "U6")
def test_model_becomes_an_object_without_titles_definitions_or_nulls() -> None:
    """Descriptions stay; pydantic's titles, ``$ref`` and the null of optional parameters go."""

    class Params(BaseModel):
        path: Annotated[str, Stripped()] = Field(description="File to read.")
        part: Range
        after: Annotated[str, AllowEmpty()] | None = Field(default=None, description="Cursor.")
        mode: Literal["text", "raw"] = "text"

    assert derive_schema(tool_of(Params)) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File to read."},
            "part": {
                "type": "object",
                "description": "A part of a file.",
                "properties": {
                    "start": {"type": "integer", "description": "First one."},
                    "unit": {
                        "type": "string",
                        "description": "What a number counts.",
                        "enum": ["lines", "bytes"],
                        "default": "lines",
                    },
                },
                "required": ["start"],
            },
            "after": {"type": "string", "description": "Cursor."},
            "mode": {"type": "string", "enum": ["text", "raw"], "default": "text"},
        },
        "required": ["path", "part"],
        "additionalProperties": False,
    }


def test_null_stays_where_it_says_more_than_absence() -> None:
    """A required parameter, or one with another default, keeps its null."""

    class Params(BaseModel):
        limit: int | None = 5
        parent: str | None

    properties = derive_schema(tool_of(Params))["properties"]
    assert properties == {
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 5},
        "parent": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }


def test_only_what_contains_itself_stays_a_definition() -> None:
    """A recursive root is written out once, then refers to its definition."""
    schema = derive_schema(tool_of(Node))
    assert schema["type"] == "object"
    assert list(schema["$defs"]) == ["Node"]  # type: ignore[arg-type]
    validator = Draft202012Validator(schema)
    assert validator.is_valid({"title": "a", "children": [{"title": "b", "children": []}]})
    assert not validator.is_valid({"title": "a", "children": [{"children": []}]})


@pytest.mark.covers("S24")
def test_order_of_keywords_is_fixed_and_of_properties_as_declared() -> None:
    """Two runs give the same bytes, so a provider's prompt cache holds."""

    class Params(BaseModel):
        zeta: int = Field(ge=1, description="Z.")
        alpha: str

    text = json.dumps(derive_schema(tool_of(Params)))
    assert text == (
        '{"type": "object", "properties": {"zeta": {"type": "integer", "description": "Z.", "minimum": 1}, '
        '"alpha": {"type": "string"}}, "required": ["zeta", "alpha"], "additionalProperties": false}'
    )


def test_model_that_takes_more_stays_open() -> None:
    """``extra="allow"`` is the author's word."""
    model = create_model("Params", __config__=ConfigDict(extra="allow"), path=(str, ...))
    assert derive_schema(tool_of(model))["additionalProperties"] is True


def test_root_of_named_values_is_an_object() -> None:
    """A root model over a dict is an object without fixed properties."""
    schema = derive_schema(tool_of(RootModel[dict[str, int]]))
    assert schema == {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"type": "array"}, "must be of type 'object'"),
        ({"type": ["object", "null"]}, "must be of type 'object'"),
        ({"properties": []}, "properties must be an object"),
        (["type"], "must be a JSON object"),
        (None, "must be a JSON object"),
        ({"default": float("nan")}, "not JSON: default"),
        ({"properties": {"a": {"const": b"x"}}}, "not JSON: properties/a/const"),
        ({"properties": {"a": {"$ref": "http://example.invalid/a"}}}, "leaves the schema"),
        ({"properties": {"a": {"$ref": "file:///etc/hostname"}}}, "leaves the schema"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "leads nowhere"),
    ],
)
def test_schema_that_is_no_plain_object_is_refused(parameters: Any, said: str) -> None:
    """ConfigError names the tool and the cause, before any session exists."""
    with pytest.raises(ConfigError, match="tool 'raw'") as caught:
        derive_schema(Raw(parameters))
    assert said in str(caught.value)


def test_union_at_the_root_stays_and_is_not_closed() -> None:
    """It decides what is taken; closing the object it is in would refuse all that its variants name."""
    schema = derive_schema(tool_of(RootModel[Range | Node]))
    assert list(schema) == ["type", "properties", "anyOf", "$defs"]
    assert "additionalProperties" not in schema
    raw = {"type": "object", "properties": {}, "oneOf": [{"required": ["a"]}]}
    assert derive_schema(Raw(raw)) == raw


def test_type_without_a_schema_is_refused() -> None:
    """A function cannot come from a model."""
    model = create_model("Params", call=(Callable[[], int], ...))
    with pytest.raises(ConfigError, match="has no JSON Schema"):
        derive_schema(tool_of(model))


def test_raw_schema_without_type_is_an_object() -> None:
    """Properties alone mean an object; nothing at all means no parameters."""
    assert derive_schema(Raw({})) == {"type": "object", "properties": {}}
    assert derive_schema(Raw({"properties": {"a": {}}}))["type"] == "object"


def test_raw_schema_keeps_titles_and_nulls() -> None:
    """Its author's words are kept: null may mean something there."""
    part: Schema = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Mine"}
    assert derive_schema(Raw({"properties": {"a": part}}))["properties"] == {"a": part}


def test_digest_names_the_schema_whatever_its_order() -> None:
    """Sorted keys; another schema has another digest."""
    assert compute_schema_digest({"a": 1, "b": [True]}) == compute_schema_digest({"b": [True], "a": 1})
    assert compute_schema_digest({"a": 1}) != compute_schema_digest({"a": 2})
    assert len(compute_schema_digest({})) == 64


def names_survive(derive: Derive, names: list[str]) -> None:
    """Properties named like keywords are properties still (REL-P31), also inside objects and values."""
    inner = create_model("Inner", **dict.fromkeys(names, (int, ...)))  # type: ignore[call-overload]
    fields: dict[str, Any] = dict.fromkeys(names, (str, ...))
    model = create_model(
        "Params", **fields, nested=(inner, ...), given=(dict[str, int], dict.fromkeys(names, 1))
    )
    schema: Any = derive(tool_of(model))
    assert list(schema["properties"]) == [*names, "nested", "given"]
    assert schema["properties"]["nested"]["properties"] == {name: {"type": "integer"} for name in names}
    assert schema["properties"]["given"]["default"] == dict.fromkeys(names, 1)
    assert schema["required"] == [*names, "nested"]


@given(st.lists(st.sampled_from(KEYWORD_NAMES), min_size=1, unique=True))
def test_properties_named_like_keywords_survive(names: list[str]) -> None:
    """REL-P31."""
    names_survive(derive_schema, names)


@pytest.mark.covers("REL-P31")
def test_cleaner_that_looks_at_names_alone_is_caught() -> None:
    """The property fails where every key called ``title`` or ``default`` goes."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(item) for key, item in value.items() if key not in {"title", "default"}}
        return value

    with pytest.raises(AssertionError):
        names_survive(lambda tool: without(derive_schema(tool)), ["path", "title"])


LEAVES: list[dict[str, Any]] = [{"type": "string"}, {"type": "integer", "minimum": 2}, {"enum": ["a", 1]}, {}]
REFS = [
    {"$ref": "#/$defs/A"},
    {"$ref": "#/$defs/B", "description": "B."},
    {"$ref": "#/$defs/B", "minimum": 5},
]


@st.composite
def raw_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an object's schema with definitions that use each other."""
    leaf = st.sampled_from(LEAVES)
    part = leaf | st.sampled_from(REFS)
    deep = (
        part
        | part.map(lambda inner: {"type": "array", "items": inner})
        | st.lists(part, min_size=1).map(lambda inner: {"anyOf": inner})
    )
    own = st.sampled_from([{"type": "array", "items": {"$ref": "#/$defs/A"}}, {"items": {"$ref": "#"}}])
    return {
        "type": "object",
        "properties": draw(st.dictionaries(st.sampled_from(["a", "b", "$ref"]), deep, max_size=3)),
        "$defs": {"A": draw(deep.filter(lambda inner: "A" not in str(inner)) | own), "B": draw(leaf)},
    }


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 7) | st.sampled_from(["a", "b", ""]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "$ref"]), inner, max_size=2)
    ),
    max_leaves=5,
)


def meaning_is_kept(derive: Derive, schema: dict[str, Any], value: Any) -> None:
    """The derived schema accepts exactly what its author's accepts."""
    original, derived = Draft202012Validator(schema), Draft202012Validator(derive(Raw(schema)))
    assert original.is_valid(value) == derived.is_valid(value)


@pytest.mark.covers("S29")
@given(raw_schemas(), VALUES)
def test_writing_out_keeps_the_meaning(schema: dict[str, Any], value: Any) -> None:
    """REL-P28: a schema written out accepts what it accepted."""
    meaning_is_kept(derive_schema, schema, value)


def test_writing_out_that_drops_what_stands_beside_a_reference_is_caught() -> None:
    """The property fails where ``minimum`` alongside ``$ref`` is lost."""

    def careless(tool: Tool[Any]) -> Schema:
        schema = copy.deepcopy(tool.parameters)  # type: ignore[attr-defined]
        for part in schema["properties"].values():
            part.pop("minimum", None)
        return derive_schema(Raw(schema))

    schema = {"properties": {"a": REFS[2]}, "$defs": {"B": {"type": "integer"}}}
    with pytest.raises(AssertionError):
        meaning_is_kept(careless, schema, {"a": 3})


def input_is_kept(derive: Derive, schema: dict[str, Any]) -> None:
    """What a tool declares stays as it was (REL-P30)."""
    before = copy.deepcopy(schema)
    derive(Raw(schema))
    assert schema == before


@given(raw_schemas())
def test_deriving_never_changes_what_was_declared(schema: dict[str, Any]) -> None:
    """REL-P30."""
    input_is_kept(derive_schema, schema)


@pytest.mark.covers("REL-P30")
@pytest.mark.slow
def test_deriving_in_place_is_caught() -> None:
    """The property fails where definitions are popped from the tool's own schema."""

    def in_place(tool: Tool[Any]) -> Schema:
        schema: Schema = tool.parameters  # type: ignore[attr-defined]
        schema.pop("$defs", None)
        return schema

    found = find(
        raw_schemas(),
        lambda schema: "$defs" in schema,
        settings=settings(max_examples=2000, database=None, derandomize=True, phases=[Phase.generate]),
    )
    with pytest.raises(AssertionError):
        input_is_kept(in_place, found)


@given(raw_schemas())
def test_deriving_twice_is_deriving_once(schema: dict[str, Any]) -> None:
    """A schema that was derived is in its final form."""
    once = derive_schema(Raw(schema))
    again: Mapping[str, JsonValue] = derive_schema(Raw(once))
    assert compute_schema_digest(again) == compute_schema_digest(once)
    assert json.dumps(again) == json.dumps(once)


@pytest.mark.covers("S27")
def test_enums_of_texts_are_flat_and_hold_no_null() -> None:
    """Values the program knows when it runs; the optional one is simply not required."""
    views = ["desktop", "tablet", "desktop"]
    shape: dict[str, Any] = {"view": (string_enum(views), ...), "other": (optional_string_enum(views), None)}
    schema = derive_schema(tool_of(create_model("Params", **shape)))
    listed = {"type": "string", "enum": ["desktop", "tablet"]}
    assert schema["properties"] == {"view": listed, "other": listed}
    assert schema["required"] == ["view"]


@pytest.mark.parametrize("values", [[], "desktop", ["a", 1], [None]])
def test_enum_of_texts_has_some_and_nothing_else(values: Any) -> None:
    """One text would make a value of every letter."""
    for made in (string_enum, optional_string_enum):
        with pytest.raises(ConfigError, match="give a list of at least one text"):
            made(values)
