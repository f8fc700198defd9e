"""Arguments of calls: normalised, coerced, required, validated."""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.client_tool import ClientTool
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.schema_tool import schema_tool
from sessiontree.contracts.tools.tool import AllowEmpty, RawTool, Stripped, Tool
from sessiontree.contracts.values.jsonable import JsonValue, compute_digest
from sessiontree.schema.compiled import CompiledTool, compile_tool
from sessiontree.schema.derive import compute_schema_digest, derive_schema


class Change(BaseModel):
    """One replacement."""

    old_text: str
    new_text: Annotated[str, AllowEmpty()]


class Parameters(BaseModel):
    """Parameters of many kinds."""

    model_config = ConfigDict(extra="forbid")

    path: str
    limit: int = Field(default=20, ge=1)
    query: Annotated[str, Stripped()] | None = None
    tags: list[str] = []
    mode: Literal["text", "raw"] = "text"
    changes: list[Change] = []


class Declared(Tool[Parameters]):
    """A tool of any parameters; it is never run."""

    name = "declared"
    description = "Declares parameters."
    Params: ClassVar[type[BaseModel]] = Parameters
    param_aliases: ClassVar[Mapping[str, str]] = {"where": "path"}

    async def execute(self, params: Parameters, ctx: ToolContext) -> ToolResult:
        return ToolResult()


class Raw(RawTool):
    """A tool of any schema; it is never run."""

    name = "raw"
    description = "Declares a schema."

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    async def execute(self, params: dict[str, JsonValue], ctx: ToolContext) -> ToolResult:
        return ToolResult(output=params)


def compiled(model: type[BaseModel], **settings: Any) -> CompiledTool:
    """Return the compiled tool of a parameter model."""
    return compile_tool(type("Other", (Declared,), {"Params": model, "param_aliases": {}, **settings})())


def refused(tool: CompiledTool, arguments: Any) -> ValidationError:
    """Return the error that these arguments end in."""
    with pytest.raises(ValidationError) as caught:
        tool.validate(arguments)
    return caught.value


DECLARED = compile_tool(Declared())


def test_compiling_keeps_name_schema_and_digest() -> None:
    """The digest is the schema's, as the journal notes it."""
    assert DECLARED.name == "declared"
    assert DECLARED.schema == derive_schema(Declared())
    assert DECLARED.digest == compute_schema_digest(DECLARED.schema)
    assert "x-" not in json.dumps(DECLARED.schema)


def test_model_gets_defaults_and_the_digest_what_was_given() -> None:
    """Final arguments hold no defaults, so a changed default changes no digest."""
    params, final = DECLARED.validate({"path": "a.txt"})
    assert params == Parameters(path="a.txt")
    assert final == {"path": "a.txt"}


@pytest.mark.covers("U4")
def test_every_slip_at_once_ends_in_canonical_arguments() -> None:
    """Spellings, numbers, lists, structures and margins are put right; two calls that mean one are one."""
    params, final = DECLARED.validate(
        {
            "filePath": "a.txt",
            "limit": "5",
            "query": " find me ",
            "tags": "one",
            "changes": '[{"old_text": "x", "new_text": ""}]',
        }
    )
    expected: dict[str, Any] = {
        "path": "a.txt",
        "limit": 5,
        "query": "find me",
        "tags": ["one"],
        "changes": [{"old_text": "x", "new_text": ""}],
    }
    assert final == expected
    assert params == Parameters.model_validate(expected)
    assert compute_digest("declared", final) == compute_digest("declared", DECLARED.validate(expected)[1])


@pytest.mark.covers("I25", "I26")
@pytest.mark.parametrize("spelling", ["path", "file_path", "filePath", "where"])
def test_every_spelling_of_a_parameter_is_taken(spelling: str) -> None:
    """Claude-style, camelCase and the tool's own aliases."""
    assert DECLARED.validate({spelling: "a"})[1] == {"path": "a"}


@pytest.mark.covers("I28")
@pytest.mark.parametrize(
    "arguments",
    [{}, {"path": ""}, {"path": None}, {"file_path": ""}, {"limit": 0}, {"zzz": "a"}],
)
def test_what_is_required_must_be_there(arguments: dict[str, Any]) -> None:
    """Missing, null and empty are one, reported first and in the specification's words."""
    error = refused(DECLARED, arguments)
    assert str(error) == "path required"
    assert error.field == "/path"


@pytest.mark.covers("S32")
def test_trimmed_name_of_white_space_is_missing() -> None:
    """Trimming comes before the check."""
    tool = compiled(type("P", (BaseModel,), {"__annotations__": {"name": Annotated[str, Stripped()]}}))
    assert str(refused(tool, {"name": " \t"})) == "name required"


def test_text_that_may_be_empty_is_given_when_empty() -> None:
    """AllowEmpty; also an enum that lists it, and a schema that says so itself."""

    class Params(BaseModel):
        content: Annotated[str, AllowEmpty()]
        end: Literal["", "\n"]

    assert compiled(Params).validate({"content": "", "end": ""})[1] == {"content": "", "end": ""}
    for part in ({"x-allow-empty": True}, {"minLength": 0}, {"anyOf": [{"type": "string", "minLength": 0}]}):
        tool = compile_tool(Raw({"properties": {"a": {"type": "string", **part}}, "required": ["a"]}))
        assert tool.validate({"a": ""})[1] == {"a": ""}


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ({"type": "string"}, ["", " ", "a"]),
        ({}, ["", None, 0, [], {}]),
        ({"type": ["string", "null"]}, ["", None]),
        ({"enum": ["", None, "a"]}, ["", None]),
        ({"type": "string", "pattern": "^a?$"}, ["", "a"]),
        ({"$ref": "#/$defs/text"}, [""]),
        ({"allOf": [{"type": "string"}]}, [""]),
    ],
)
def test_schema_from_elsewhere_says_itself_what_may_be_empty(part: dict[str, Any], values: list[Any]) -> None:
    """Of a RawTool, a schema_tool and a client's tool: what it takes is taken, also where it is required."""
    schema: dict[str, Any] = {
        "properties": {"v": part},
        "required": ["v"],
        "$defs": {"text": {"type": "string"}},
    }

    @schema_tool(schema, description="Takes it.")
    def taking(params: dict[str, JsonValue]) -> str:
        return "done"

    for tool in (Raw(schema), taking, ClientTool("ask", "Asks.", schema)):
        for value in values:
            assert compile_tool(tool).validate({"v": value})[1] == {"v": value}
        assert str(refused(compile_tool(tool), {})) == "v required"


def test_schema_from_elsewhere_may_refuse_what_is_empty() -> None:
    """In its own words; of null and of what is missing the message is the specification's."""
    tool = compile_tool(Raw({"properties": {"v": {"type": "string", "minLength": 1}}, "required": ["v"]}))
    assert refused(tool, {"v": ""}).field == "/v"
    assert "shorter than 1 character" in str(refused(tool, {"v": ""}))
    assert str(refused(tool, {"v": None})) == "v required"


def test_required_null_that_one_variant_takes_is_taken() -> None:
    """Whatever the variants that name it say."""
    schema = {"anyOf": [{"properties": {"v": {"type": "string"}}}, {"properties": {"w": {"const": 1}}}]}
    tool = compile_tool(Raw({**schema, "required": ["v", "w"]}))
    assert tool.validate({"v": None, "w": 1})[1] == {"v": None, "w": 1}


def test_optional_null_is_absence_and_a_meant_null_stays() -> None:
    """Models write null for what they leave out; where null has its own meaning it arrives."""

    class Params(BaseModel):
        name: str | None = None
        limit: int = 3
        until: int | None = 9
        parent: str | None

    params, final = compiled(Params).validate({"name": None, "limit": None, "until": None, "parent": None})
    assert final == {"until": None, "parent": None}
    assert params.model_dump() == {"name": None, "limit": 3, "until": None, "parent": None}


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"path": "a", "limit": 0}, "/limit", "less than the minimum of 1 (got 0)"),
        ({"path": "a", "limit": "few"}, "/limit", 'not of type "integer" (got "few")'),
        ({"path": "a", "limit": True}, "/limit", "(got true)"),
        ({"path": 5.0}, "/path", 'not of type "string"'),
        ({"path": "a", "mode": "fast"}, "/mode", 'not one of "text" or "raw"'),
        ({"path": "a", "tags": [1, {"b": 2}]}, "/tags/1", 'not of type "string"'),
        ({"path": "a", "changes": [{"old_text": "x"}]}, "/changes/0/new_text", "changes/0/new_text required"),
        (
            {"path": "a", "paht": 1, "oops": 2},
            "/paht",
            'unknown parameters "paht", "oops"; known: path, limit',
        ),
        ({"path": "a", "file_path": "a"}, "/path", "'path' and 'file_path' are two spellings"),
        ({"where": "a", "filePath": "b"}, "/path", "'where' and 'filePath' are two spellings"),
    ],
)
def test_error_names_the_field_and_the_cause(arguments: dict[str, Any], field: str, said: str) -> None:
    """A JSON pointer by canonical name, and a message a model can act on."""
    error = refused(DECLARED, arguments)
    assert error.field == field
    assert said in str(error)


def test_several_faults_are_told_at_once_the_first_given_first() -> None:
    """A model has three attempts; it hears all it can mend."""
    error = refused(DECLARED, {"path": "a", "tags": [{}] * 9 + [1], "limit": -1})
    assert error.field == "/tags/0"
    assert str(error).count("; ") == 3
    assert "limit" in str(refused(DECLARED, {"path": "a", "mode": "x", "limit": -1}))


def test_long_value_is_not_sent_back_whole() -> None:
    """Only its beginning is shown."""
    assert len(str(refused(DECLARED, {"path": ["x" * 10_000]}))) < 400


def deep(levels: int) -> Any:
    """Return lists in lists."""
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (None, None),
        ([], None),
        ("path", None),
        (b"{}", None),
        (7, None),
        ({1: "a"}, None),
        ({None: "a"}, None),
        ({b"path": "a"}, None),
        ({"\ud800": "a", "path": "a"}, None),
        ({"path": b"a"}, "/path"),
        ({"filePath": "\ud800"}, "/path"),
        ({"path": "a", "tags": ["ok", "\udfff"]}, "/tags/1"),
        ({"path": "a", "limit": math.nan}, "/limit"),
        ({"path": "a", "limit": math.inf}, "/limit"),
        ({"path": "a", "limit": 10**400}, "/limit"),
        ({"path": "a", "limit": 10**5000}, "/limit"),
        ({"path": "a", "limit": "9" * 5000}, "/limit"),
        ({"path": "a", "limit": Path()}, "/limit"),
        ({"path": "a", "tags": {"a", "b"}}, "/tags"),
        ({"path": "a", "tags": deep(10_000)}, "/tags" + "/0" * 127),
        ({"path": "a", "changes": '{"a":' * 10_000}, "/changes"),
        ({"path": "a", "changes": "[" * 100 + "]" * 100}, "/changes/0"),
        ({"path": "a", "changes": deep(100)}, "/changes/0"),
        ({"path": "a", "other": {"path": deep(200)}}, "/other/path" + "/0" * 126),
    ],
)
def test_whatever_is_handed_in_the_answer_is_a_validation_error(arguments: Any, field: str | None) -> None:
    """Nothing else is ever raised, and the error survives as JSON."""
    error = refused(DECLARED, arguments)
    assert error.field == field
    json.dumps([error.message, error.field])


def test_text_of_brackets_is_no_list() -> None:
    """What begins like a structure and can't be read is refused, however deep it would be."""
    assert "can't be read" in str(refused(DECLARED, {"path": "a", "tags": "[" * 10_000}))


def test_missing_parameter_names_the_unknown_one_that_was_meant() -> None:
    """The nearest name is said, if one is near."""
    assert str(refused(DECLARED, {"pth": "a"})) == "path required; \"pth\" is not a parameter, write 'path'"
    assert str(refused(DECLARED, {"zzz": "a"})) == "path required"


def test_open_schema_takes_what_it_does_not_name_but_only_json() -> None:
    """Names it does not know pass as they are; bad values in them do not."""
    tool = compile_tool(Raw({"properties": {"path": {"type": "string"}}}))
    assert tool.validate({"filePath": "a", "other": [1]})[1] == {"path": "a", "other": [1]}
    for bad in (b"x", math.nan, "\ud800", {1: 2}, deep(10_000)):
        assert refused(tool, {"path": "a", "other": bad}).field is not None
    assert refused(tool, {"\ud800": 1}).field is None


@pytest.mark.covers("A43")
def test_raw_tool_gets_a_dict_of_its_own() -> None:
    """What the tool does to its parameters changes neither the digest nor the caller's arguments."""
    tool = compile_tool(Raw({"properties": {"a": {"type": "array"}}, "required": ["a"]}))
    given: dict[str, Any] = {"a": [[1]]}
    params, final = tool.validate(given)
    params["a"][0].append(2)
    assert final == given == {"a": [[1]]}


def test_model_shares_nothing_with_the_final_arguments() -> None:
    """A field of any type would otherwise hand the same list to tool and digest."""

    class Params(BaseModel):
        data: Any

    given: dict[str, Any] = {"data": {"a": [1]}}
    params, final = compiled(Params).validate(given)
    params.data["a"].append(2)
    assert final == given == {"data": {"a": [1]}}


def test_schema_decides_where_the_model_is_more_lenient() -> None:
    """A validator that reads other shapes changes nothing: what a model learned holds."""

    class Params(BaseModel):
        sizes: Annotated[list[int], BeforeValidator(lambda value: value if isinstance(value, list) else [0])]

    assert refused(compiled(Params), {"sizes": 5}).field == "/sizes"


def test_models_own_checks_come_last_and_are_told() -> None:
    """Field checks point at the field, checks of the whole at nothing."""

    class Span(BaseModel):
        start: int
        end: int

        @field_validator("start")
        @classmethod
        def not_seven(cls, value: int) -> int:
            if value == 7:
                raise ValueError("seven is taken")
            return value

        @model_validator(mode="after")
        def in_order(self) -> Self:
            if self.end < self.start:
                raise ValueError("end is before start")
            if self.end == 13:
                raise KeyError("thirteen")
            return self

    class Params(BaseModel):
        span: Span | int

    tool = compiled(Params)
    error = refused(tool, {"span": {"start": 7, "end": 9}})
    assert (error.field, "seven is taken" in str(error)) == ("/span/start", True)
    error = refused(tool, {"span": {"start": 3, "end": 2}})
    assert (error.field, "end is before start" in str(error)) == ("/span", True)
    error = refused(tool, {"span": {"start": 3, "end": 13}})
    assert (error.field, "KeyError" in str(error)) == (None, True)
    error = refused(compiled(Span), {"start": 3, "end": 2})
    assert (error.field, str(error)) == (None, "end is before start")


def test_strict_model_reads_json() -> None:
    """Strictness is about JSON's types, not Python's: a date is a string there, a set a list."""

    class Params(BaseModel):
        model_config = ConfigDict(strict=True)

        path: Path
        names: set[str]

    params, final = compiled(Params).validate({"path": "a", "names": ["x"]})
    assert params == Params(path=Path("a"), names={"x"})
    assert final == {"path": "a", "names": ["x"]}


def test_fields_with_other_names_are_called_by_them() -> None:
    """The schema's name is canonical; the Python name and further choices are spellings of it."""

    class Params(BaseModel):
        from_: str = Field(alias="from")
        to: str = Field(validation_alias=AliasChoices("to_place", "target"))

    tool = compiled(Params)
    assert list(tool.schema["properties"]) == ["from", "to_place"]  # type: ignore[arg-type]
    params, final = tool.validate({"from_": "a", "target": "b"})
    assert (params.from_, params.to, final) == ("a", "b", {"from": "a", "to_place": "b"})


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"properties": {"a": {"type": "text"}}}, "not a valid JSON Schema"),
        ({"properties": {"a": {"pattern": "("}}}, "not a valid JSON Schema"),
        ({"properties": {"a": {"required": True}}}, "not a valid JSON Schema"),
        ({"$schema": "https://example.invalid/draft"}, "not a valid JSON Schema"),
        ({"description": "\ud800"}, "half of a surrogate pair"),
    ],
)
def test_schema_that_cannot_work_is_refused_before_any_session(parameters: Any, said: str) -> None:
    """ConfigError names the tool."""
    with pytest.raises(ConfigError, match="tool 'raw'") as caught:
        compile_tool(Raw(parameters))
    assert said in str(caught.value)


def test_tools_of_one_model_share_what_is_compiled_until_it_is_rebuilt() -> None:
    """Another name, another alias, or a field that was changed since makes another tool of it."""

    class Params(BaseModel):
        size: int = 1

    first = compiled(Params)
    assert compiled(Params) is first
    assert compiled(Params, name="other") is not first
    assert compiled(Params, param_aliases={"width": "size"}) is not first
    assert compiled(Params, brief=True) is not first
    Params.model_fields["size"].default = 2
    Params.model_rebuild(force=True)
    again = compiled(Params)
    assert (again.schema["properties"], again.validate({})[0].size) == (
        {"size": {"type": "integer", "default": 2}},
        2,
    )


def test_raw_tools_of_equal_schemas_share_what_is_compiled() -> None:
    """The text of the schema decides, the order of properties and the kind of a number included."""
    given: dict[str, Any] = {"properties": {"a": {"const": 1}, "b": {}}}
    first = compile_tool(Raw(given))
    assert compile_tool(Raw({"properties": {**given["properties"]}})) is first
    given["properties"]["a"]["const"] = 1.0
    assert compile_tool(Raw(given)) is not first
    other = compile_tool(Raw({"properties": {"b": {}, "a": {"const": 1}}}))
    assert list(other.schema["properties"]) == ["b", "a"]  # type: ignore[arg-type]


def test_alias_to_nowhere_is_refused_before_any_session() -> None:
    """A typing error in a tool's class must not wait for a call."""
    with pytest.raises(ConfigError, match="tool 'declared': alias"):
        compiled(Parameters, param_aliases={"file": "pth"})


def test_read_only_mapping_is_as_good_as_a_dict() -> None:
    """Frozen messages hand in what they hold."""
    assert DECLARED.validate(MappingProxyType({"path": "a", "limit": 3})) == DECLARED.validate(
        {"path": "a", "limit": 3}
    )


class Pair(BaseModel):
    """What the speed of a call is measured with."""

    path: str
    limit: int = 20


def fastest_s(work: Callable[[], object], runs: int = 500, repeats: int = 15) -> float:
    """Return the shortest mean time of one call: seconds of the processor, which others do not add to."""
    gc.disable()
    try:
        best = math.inf
        for _ in range(repeats):
            start = time.thread_time()
            for _ in range(runs):
                work()
            best = min(best, (time.thread_time() - start) / runs)
    finally:
        gc.enable()
    return best


def test_canonical_arguments_cost_little_more_than_the_model_alone() -> None:
    """The hot path: at most six times the model's own validation of two fields, on any machine."""
    tool, validate = compiled(Pair), Pair.__pydantic_validator__.validate_python
    arguments: Any = {"path": "notes.md", "limit": 20}
    alone, whole = fastest_s(lambda: validate(arguments)), fastest_s(lambda: tool.validate(arguments))
    assert whole < 6 * alone
