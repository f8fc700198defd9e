"""What a model is shown of a tool, and what its calls are checked against all the same."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, RootModel

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import AllowEmpty, RawTool, Stripped, Tool
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.compiled import compile_tool
from sessiontree.schema.dialect import DIALECTS, Dialect, Loss


class Circle(BaseModel):
    """A round shape."""

    radius: int


class Square(BaseModel):
    """A shape with corners."""

    side: int


class Parameters(BaseModel):
    """Parameters of several kinds, most of them optional."""

    model_config = ConfigDict(extra="forbid")

    path: str
    query: Annotated[str, Stripped()] | None = None
    note: Annotated[str, AllowEmpty()] = ""
    tags: list[str] = []
    mode: Literal["text", "raw"] = "text"
    shape: Circle | None = None


class Declared(Tool[Any]):
    """A tool of any parameters; it is never run."""

    name = "declared"
    description = "Declares parameters."
    Params: ClassVar[type[BaseModel]] = Parameters

    async def execute(self, params: BaseModel, ctx: ToolContext) -> ToolResult:
        """Hand the parameters back."""
        return ToolResult(output=params.model_dump(mode="json"))


class Raw(RawTool):
    """A tool of any schema; it is never run."""

    name = "raw"
    description = "Declares a schema."

    def __init__(self, parameters: dict[str, JsonValue]) -> None:
        self.parameters = parameters

    async def execute(self, params: dict[str, JsonValue], ctx: ToolContext) -> ToolResult:
        """Hand the parameters back."""
        return ToolResult(output=params)


def test_union_at_the_root_is_what_calls_are_checked_against() -> None:
    """Names of all variants have their spellings; which go together is the union's to say."""
    tool = compile_tool(
        Raw(
            {
                "properties": {"action": {"type": "string"}},
                "required": ["action"],
                "oneOf": [
                    {"properties": {"action": {"const": "open"}, "file_name": {"type": "string"}}},
                    {"properties": {"action": {"const": "close"}}},
                ],
            }
        )
    )
    _, final = tool.validate({"action": "open", "fileName": "a.txt"})
    assert final == {"action": "open", "file_name": "a.txt"}
    refused: list[dict[str, JsonValue]] = [
        {"action": "eat"},
        {"action": "open", "file_name": [1]},
        {"file_name": "a.txt"},
    ]
    for arguments in refused:
        with pytest.raises(ValidationError):
            tool.validate(arguments)


def test_model_that_is_a_union_gets_what_fits() -> None:
    """Variants are objects with parameters of their own."""
    tool = compile_tool(type("Shape", (Declared,), {"Params": RootModel[Circle | Square]})())
    params, final = tool.validate({"side": 3})
    assert (params.root, final) == (Square(side=3), {"side": 3})
    with pytest.raises(ValidationError):
        tool.validate({"corner": 3})


@pytest.mark.covers("REL-P28")
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_what_a_model_is_not_told_is_asked_all_the_same(dialect: Dialect) -> None:
    """Constraints left out of what is shown still refuse a call; the report names them."""
    tool = compile_tool(
        Raw({"properties": {"id": {"type": "string", "pattern": "^[0-9a-f]{4}$"}, "size": {"maximum": 3}}})
    )
    shown = tool.clean_for(dialect)
    if dialect.keywords is not None and "pattern" not in dialect.keywords:
        assert Loss("/properties/id", "pattern", "wider", "left out") in shown.losses
        assert Draft202012Validator(shown.schema).is_valid({"id": "no"})
    refused: list[dict[str, JsonValue]] = [{"id": "no"}, {"size": 4}]
    for arguments in refused:
        with pytest.raises(ValidationError):
            tool.validate(arguments)
    assert tool.validate({"id": "beef", "size": 3})[1] == {"id": "beef", "size": 3}


@pytest.mark.covers("S30")
def test_tool_is_cleaned_once_for_each_dialect() -> None:
    """Every session of every model of a dialect is shown the very same object."""
    tool = compile_tool(Declared())
    first = {name: tool.clean_for(dialect) for name, dialect in DIALECTS.items()}
    assert all(tool.clean_for(dialect) is first[name] for name, dialect in DIALECTS.items())
    assert first["plain"].schema == tool.schema


def test_null_as_strict_models_say_it_is_a_parameter_left_out() -> None:
    """What strict mode makes a model send is what the tool's own schema takes."""
    tool = compile_tool(Declared())
    shown = tool.clean_for(DIALECTS["openai-strict"]).schema
    said = {"path": "a", "query": None, "note": None, "tags": None, "mode": None, "shape": None}
    assert Draft202012Validator(shown).is_valid(said)
    assert tool.validate(said)[1] == {"path": "a"}
    assert tool.validate({**said, "shape": {"radius": 1}})[1] == {"path": "a", "shape": {"radius": 1}}


class Bounded(BaseModel):
    """Parameters with bounds."""

    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(min_length=1, max_length=9, pattern="^a", description="What to find.")
    default: int = Field(default=3, ge=1, le=5)


class Brief(Declared):
    """The same tool with bounds, shown briefly."""

    Params: ClassVar[type[BaseModel]] = Bounded
    brief = True


@pytest.mark.parametrize("dialect", [DIALECTS["plain"], DIALECTS["openai"]], ids=lambda dialect: dialect.name)
def test_brief_tool_shows_no_bounds_and_is_checked_against_them(dialect: Dialect) -> None:
    """Names, types and descriptions remain; properties may be called like a keyword."""
    compiled = compile_tool(Brief())
    assert compiled.clean_for(dialect).schema == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "What to find."},
            "default": {"type": "integer"},
        },
        "required": ["pattern"],
    }
    cases: list[dict[str, JsonValue]] = [
        {"pattern": "b"},
        {"pattern": "a", "default": 6},
        {"pattern": "a", "other": 1},
    ]
    for refused in cases:
        with pytest.raises(ValidationError):
            compiled.validate(refused)


def test_brief_tool_is_closed_where_a_dialect_wants_that_said() -> None:
    """OpenAI's strict mode takes closed objects only; nothing narrower is reported."""
    shown = compile_tool(Brief()).clean_for(DIALECTS["openai-strict"])
    assert shown.schema["additionalProperties"] is False
    assert "additionalProperties" not in {loss.keyword for loss in shown.losses}
