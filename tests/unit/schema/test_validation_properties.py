"""Properties of a compiled tool, over generated parameter models and spoiled arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic import ValidationError as ModelError

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import AllowEmpty, RawTool, Stripped, Tool
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.compiled import CompiledTool, compile_tool

Validate = Callable[[Mapping[str, Any]], tuple[Any, dict[str, Any]]]
Normalise = Callable[[Mapping[str, Any]], dict[str, Any]]

NAMES = (
    "path",
    "old_text",
    "maxCount",
    "format",
    "pattern",
    "type",
    "properties",
    "title",
    "default",
    "items",
)


class Place(BaseModel):
    """A nested object, as a parameter may be one."""

    title: str
    line: int | None = None


TEXT = st.text(max_size=6)
TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, TEXT),
    (Annotated[str, Stripped()], TEXT),
    (Annotated[str, AllowEmpty()], TEXT),
    (Annotated[str, Field(max_length=3)], st.text(max_size=3)),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (int, st.integers()),
    (Annotated[int, Field(ge=1, le=9)], st.integers(1, 9)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (list[str], st.lists(TEXT, max_size=3)),
    (list[int], st.lists(st.integers(), max_size=3)),
    (list[Annotated[str, Stripped()]], st.lists(TEXT, max_size=3)),
    (dict[str, int], st.dictionaries(TEXT, st.integers(), max_size=2)),
    (Place, st.fixed_dictionaries({"title": TEXT}, optional={"line": st.integers()})),
    (list[Place], st.lists(st.fixed_dictionaries({"title": TEXT}), max_size=2)),
    (int | str, st.integers() | TEXT),
    (bool | list[str], st.booleans() | st.lists(TEXT, max_size=2)),
]
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | st.sampled_from(["3", "3.0", "true", "[1]", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=4,
)


@dataclass(frozen=True)
class Case:
    """A compiled tool, its model, and arguments somebody gave."""

    tool: CompiledTool
    model: type[BaseModel]
    arguments: dict[str, Any]


class Declared(Tool[BaseModel]):
    """A tool of any parameters; it is never run."""

    name = "declared"
    description = "Declares parameters."

    async def execute(self, params: BaseModel, ctx: ToolContext) -> ToolResult:
        """Hand the parameters back."""
        return ToolResult(output=params.model_dump(mode="json"))


class Raw(RawTool):
    """A tool of any schema; it is never run."""

    name = "raw"
    description = "Declares a schema."

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.parameters = parameters

    async def execute(self, params: dict[str, JsonValue], ctx: ToolContext) -> ToolResult:
        """Hand the parameters back."""
        return ToolResult(output=params)


def compiled(model: type[BaseModel]) -> CompiledTool:
    """Return the compiled tool of a parameter model."""
    return compile_tool(type("Declared", (Declared,), {"Params": model})())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a model, or its schema alone, and arguments that fit it or nearly do."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    fields: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for name in names:
        annotation, values = draw(st.sampled_from(TYPES))
        optional = draw(st.booleans())
        fields[name] = (annotation | None, None) if optional else (annotation, ...)
        arguments[name] = draw(values)
    config = ConfigDict(extra=draw(st.sampled_from(["forbid", "ignore"])))
    model = create_model("Parameters", __config__=config, **fields)
    for _ in range(draw(st.integers(0, 2))):
        spoil(draw, arguments)
    tool = compile_tool(Raw(model.model_json_schema())) if draw(st.booleans()) else compiled(model)
    return Case(tool, model, arguments)


def spoil(draw: st.DrawFn, arguments: dict[str, Any]) -> None:
    """Change the arguments the way a model might."""
    name = draw(st.sampled_from([*arguments, "other"]))
    kind = draw(st.sampled_from(["drop", "junk", "text", "blocks", "respell", "null", "empty"]))
    if kind == "drop":
        arguments.pop(name, None)
    elif kind == "respell":
        other = {"path": "filePath", "old_text": "oldText", "maxCount": "max_count"}.get(name, name)
        arguments[other] = arguments.pop(name, 1)
    else:
        text = str(arguments.get(name))
        blocks: list[Any] = [
            {"type": "text", "text": text},
            {draw(st.sampled_from(["text", "value", "x"])): "1"},
        ]
        spoiled = {"junk": draw(JUNK), "text": text, "blocks": blocks, "null": None, "empty": ""}
        arguments[name] = spoiled[kind]


def accepted_arguments_fit(validate: Validate, case: Case) -> None:
    """Whatever is accepted fits the schema in the eyes of an independent validator (REL-P22)."""
    try:
        _, final = validate(case.arguments)
    except ValidationError:
        return
    assert Draft202012Validator(case.tool.schema).is_valid(final), final


def failing_fields(schema: Mapping[str, Any], arguments: Any) -> set[str]:
    """Return the pointers an independent validator finds at fault."""
    found = set()
    for error in Draft202012Validator(schema).iter_errors(arguments):
        path = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in error.absolute_path)
        found.add(path)
        if error.validator == "required":
            found |= {f"{path}/{name}" for name in error.validator_value if name not in error.instance}
        if error.validator == "additionalProperties":
            known = error.schema.get("properties", {})
            found |= {
                f"{path}/" + name.replace("~", "~0").replace("/", "~1")
                for name in error.instance
                if name not in known
            }
    return found


def required(case: Case) -> list[str]:
    """Return the names a case's schema requires."""
    names: Any = case.tool.schema.get("required", [])
    return list(names)


def errors_name_a_failing_field(validate: Validate, case: Case) -> None:
    """The field of an error fails by an independent validator, or is required and empty (REL-P23)."""
    try:
        normal = case.tool.normalise(case.arguments)
    except ValidationError:
        return
    try:
        validate(case.arguments)
    except ValidationError as error:
        empty = {f"/{name}" for name in required(case) if normal.get(name) == ""}
        assert error.field in failing_fields(case.tool.schema, normal) | empty, (error, normal)


def normalising_twice_is_once(normalise: Normalise, case: Case) -> None:
    """A second pass changes nothing, not even a number's type."""
    try:
        once = normalise(case.arguments)
    except ValidationError:
        return
    assert repr(normalise(once)) == repr(once)


def outcome(validate: Validate, arguments: Mapping[str, Any]) -> str:
    """Return all there is to see of a validation."""
    try:
        return repr(validate(arguments))
    except ValidationError as error:
        return repr((error.message, error.field))


def both_paths_agree(validate: Validate, case: Case) -> None:
    """A dict, which may take the fast path, gives what any other mapping gives, which never does."""
    assert outcome(validate, case.arguments) == outcome(validate, MappingProxyType(case.arguments))


def breaks(holds: Callable[[Case], None], case: Case) -> bool:
    """Whether a property fails on a case."""
    try:
        holds(case)
    except AssertionError:
        return True
    return False


@pytest.mark.covers("REL-P22")
@given(cases())
def test_accepted_arguments_fit_by_an_independent_validator(case: Case) -> None:
    """REL-P22: no tool body ever gets arguments its schema refuses."""
    accepted_arguments_fit(case.tool.validate, case)


@pytest.mark.covers("REL-P22")
@pytest.mark.slow
def test_lenient_model_alone_is_caught() -> None:
    """The property fails where the model's own leniency decides."""

    def lenient(case: Case) -> None:
        def validate(arguments: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
            try:
                return case.model.model_validate(arguments), dict(arguments)
            except ModelError as error:
                raise ValidationError(str(error)) from error

        accepted_arguments_fit(validate, case)

    assert_some_case_breaks(lenient)


@pytest.mark.covers("REL-P23")
@given(cases())
def test_errors_name_a_field_that_fails_by_an_independent_validator(case: Case) -> None:
    """REL-P23: the model is informed of a field that really is wrong."""
    errors_name_a_failing_field(case.tool.validate, case)


@pytest.mark.covers("REL-P23")
@pytest.mark.slow
def test_error_at_another_field_is_caught() -> None:
    """The property fails where an error names the first parameter, whichever is wrong."""

    def careless(case: Case) -> None:
        def validate(arguments: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
            try:
                return case.tool.validate(arguments)
            except ValidationError as error:
                raise ValidationError(error.message, f"/{next(iter(arguments), '')}") from error

        errors_name_a_failing_field(validate, case)

    assert_some_case_breaks(careless)


@given(cases())
def test_normalising_is_idempotent(case: Case) -> None:
    """Hooks and retries may send final arguments through again: their digest stays."""
    normalising_twice_is_once(case.tool.normalise, case)


@pytest.mark.slow
def test_wrapping_that_goes_on_is_caught() -> None:
    """The property fails where a second pass wraps what the first one wrapped."""

    def wrapping(case: Case) -> None:
        def normalise(arguments: Mapping[str, Any]) -> dict[str, Any]:
            return {name: [value] for name, value in case.tool.normalise(arguments).items()}

        normalising_twice_is_once(normalise, case)

    assert_some_case_breaks(wrapping)


@given(cases())
def test_fast_path_equals_the_slow_path(case: Case) -> None:
    """Speed changes no answer: parameters, final arguments and errors are the same."""
    both_paths_agree(case.tool.validate, case)


def test_fast_path_that_forgets_to_trim_is_caught() -> None:
    """The property fails where canonical names alone are taken for canonical arguments."""

    def hasty(case: Case) -> None:
        def validate(arguments: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
            if type(arguments) is dict and arguments.keys() <= case.model.model_fields.keys():
                try:
                    return case.model.model_validate(arguments), dict(arguments)
                except ModelError:
                    pass
            return case.tool.validate(arguments)

        both_paths_agree(validate, case)

    assert_some_case_breaks(hasty)


@given(cases())
def test_validating_never_changes_what_was_given(case: Case) -> None:
    """The arguments belong to the journal; validation works on copies."""
    before = repr(case.arguments)
    outcome(case.tool.validate, case.arguments)
    assert repr(case.arguments) == before


@given(cases())
def test_what_fits_and_is_there_is_accepted(case: Case) -> None:
    """A refusal has a cause: arguments that fit the schema, with nothing required empty, run."""
    try:
        normal = case.tool.normalise(case.arguments)
    except ValidationError:
        return
    empty = any(normal.get(name) == "" for name in required(case))
    if not empty and Draft202012Validator(case.tool.schema).is_valid(normal):
        case.tool.validate(case.arguments)


ODD = st.recursive(
    st.sampled_from([b"x", "\ud800", 10**400, float("nan"), {1, 2}, object(), ...]) | JUNK,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.integers() | st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)


def nothing_else_is_raised(validate: Validate, arguments: Any) -> None:
    """Whatever is handed in, a validation error is the worst that happens."""
    try:
        validate(arguments)
    except ValidationError:
        return
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error


@given(cases(), st.sampled_from(NAMES), ODD)
def test_odd_values_end_in_a_validation_error(case: Case, name: str, odd: Any) -> None:
    """Values no JSON parser makes come from hooks and programs, alone or in place of a parameter."""
    nothing_else_is_raised(case.tool.validate, odd)
    nothing_else_is_raised(case.tool.validate, {**case.arguments, name: odd})


def test_model_that_speaks_for_itself_is_caught() -> None:
    """The property fails where pydantic's own error gets out."""
    with pytest.raises(AssertionError, match="ValidationError"):
        nothing_else_is_raised(lambda arguments: (Place.model_validate(arguments), {}), {1: 2})


def assert_some_case_breaks(holds: Callable[[Case], None]) -> None:
    """Assert that a search finds a case on which the property fails."""
    found = find(
        cases(),
        lambda case: breaks(holds, case),
        settings=settings(max_examples=2000, database=None, derandomize=True, phases=[Phase.generate]),
    )
    with pytest.raises(AssertionError):
        holds(found)
