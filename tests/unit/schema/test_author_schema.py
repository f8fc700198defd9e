"""A schema from elsewhere means what its author wrote: calls are accepted exactly where an oracle accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import RawTool
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.compiled import CompiledTool, compile_tool
from tests.example_fixtures import examples
from tests.unit.schema.schema_strategies import VALUES, fitting, roots

Compile: TypeAlias = Callable[[dict[str, Any]], CompiledTool]
Case: TypeAlias = tuple[dict[str, Any], list[dict[str, Any]]]
SEARCH = settings(max_examples=2_000, derandomize=True, database=None, phases=[Phase.generate])


class Given(RawTool):
    """A tool of any schema; it is never run."""

    name = "given"
    description = "Declares a schema."

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.parameters = parameters

    async def execute(self, params: dict[str, JsonValue], ctx: ToolContext) -> ToolResult:
        """Do nothing."""
        return ToolResult()


def compiled(schema: dict[str, Any]) -> CompiledTool:
    """Return a schema as calls are checked by it."""
    return compile_tool(Given(schema))


PARTS: dict[str, st.SearchStrategy[Any]] = {
    "properties": st.fixed_dictionaries(
        {}, optional={"a": st.just({}), "b": st.sampled_from([{}, False, {"const": 1}])}
    ),
    "patternProperties": st.sampled_from([{"^b": {}}, {"a": False}]),
    "additionalProperties": st.sampled_from([False, {"const": 1}, {}]),
    "unevaluatedProperties": st.sampled_from([False, {"const": 1}]),
    "required": st.sampled_from([["a"], ["b"]]),
    "propertyNames": st.just({"pattern": "^[ab]$"}),
    "dependentSchemas": st.just({"a": {"properties": {"b": {"const": 1}}}}),
    "items": st.sampled_from([False, {"const": 1}, {}]),
    "prefixItems": st.sampled_from([[{}], [{}, {"const": 1}]]),
    "unevaluatedItems": st.sampled_from([False, {"const": 1}]),
    "contains": st.just({"const": 1}),
    "minContains": st.integers(0, 2),
    "maxContains": st.integers(0, 2),
    "if": st.sampled_from([{"type": "object"}, {"type": "array"}]),
    "then": st.sampled_from([False, {"minItems": 1}, {"required": ["a"]}]),
    "else": st.sampled_from([False, {"minProperties": 1}]),
    "allOf": st.sampled_from([[{"minProperties": 1}], [{"properties": {"a": {}}}]]),
    "anyOf": st.sampled_from([[{"required": ["a"]}, {"minItems": 1}], [{"properties": {"b": {}}}]]),
    "minItems": st.integers(0, 2),
    "description": st.just("Said."),
}
SMALL = st.sampled_from([1, None]) | st.lists(st.sampled_from([1, None]), max_size=3)
SMALL_VALUES = SMALL | st.dictionaries(st.sampled_from(["a", "b", "ab"]), SMALL, max_size=3)


def parts(draw: st.DrawFn) -> dict[str, Any]:
    """Draw one to three keywords that look at each other."""
    chosen = draw(st.lists(st.sampled_from(sorted(PARTS)), min_size=1, max_size=3, unique=True))
    return {keyword: draw(PARTS[keyword]) for keyword in chosen}


@st.composite
def neighbours(draw: st.DrawFn) -> Case:
    """Draw two small schemas, one next to a reference to the other, at the root or below it."""
    target, beside = parts(draw), parts(draw)
    values = draw(st.lists(SMALL_VALUES, min_size=3, max_size=6))
    if draw(st.booleans()):
        root: dict[str, Any] = {"$ref": "#/$defs/A", **beside, "$defs": {"A": target}}
        return root, [value for value in values if isinstance(value, dict)]
    schema: dict[str, Any] = {
        "properties": {"v": {"$ref": "#/$defs/A", **beside}},
        "required": ["v"],
        "$defs": {"A": target},
    }
    return schema, [{"v": value} for value in values]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a schema, its root's type said or not, and objects that mostly fit it."""
    schema = draw(roots())
    if draw(st.booleans()):
        del schema["type"]
    values = [fitting({"type": "object", **schema}, schema, draw) for _ in range(3)] + [draw(VALUES)]
    return schema, [value for value in values if isinstance(value, dict)]


def means_what_was_written(compile_: Compile, case: Case) -> None:
    """Property: what the documented coercions leave of a value is taken where the author's schema does."""
    schema, values = case
    try:
        tool = compile_(schema)
    except ConfigError:
        return
    author = Draft202012Validator(schema)
    for value in values:
        try:
            normal = tool.normalise(value)
        except ValidationError:
            continue
        assert is_taken(tool, value) == author.is_valid(normal), (schema, value, normal)
        if normal == value:
            assert is_taken(tool, value) == author.is_valid(value)


def is_taken(tool: CompiledTool, value: dict[str, Any]) -> bool:
    """Whether a call is accepted."""
    try:
        tool.validate(value)
    except ValidationError:
        return False
    return True


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(cases() | neighbours())
def test_schema_from_elsewhere_means_what_its_author_wrote(case: Case) -> None:
    """References with anything next to them, recursive roots, empty and null values, every keyword."""
    means_what_was_written(compiled, case)


def _typed(schema: dict[str, Any]) -> CompiledTool:
    """Planted: a root that everybody must be an object for."""
    return compiled({**schema, "type": "object"})


def _beside_wins(schema: dict[str, Any]) -> CompiledTool:
    """Planted: what is next to a reference is laid over what it leads to, and looks at it."""
    target = schema["$defs"]["A"]
    if "$ref" in schema:
        return compiled({**target, **schema, "$ref": "#/$defs/none", "$defs": {"none": {}}})
    beside = {**target, **schema["properties"]["v"], "$ref": "#/$defs/none"}
    return compiled({**schema, "properties": {"v": beside}, "$defs": {"none": {}}})


def test_planted_root_is_found() -> None:
    """It is stricter than its author."""
    case: Case = ({"properties": {"a": {"$ref": "#"}}}, [{"a": False}, {"a": {}}])
    means_what_was_written(compiled, case)
    with pytest.raises(AssertionError):
        means_what_was_written(_typed, case)


@pytest.mark.slow
def test_planted_merge_is_found() -> None:
    """By chance, in a few hundred small schemas."""

    def fails(case: Case) -> bool:
        try:
            means_what_was_written(_beside_wins, case)
        except AssertionError:
            return True
        return False

    assert find(neighbours(), fails, settings=SEARCH)
