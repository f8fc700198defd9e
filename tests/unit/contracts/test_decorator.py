"""Tools made of functions."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic import ValidationError as ModelError

from sessiontree.contracts.errors import ConfigError, ExecutionError
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import WEB
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import CallSignals, SessionRights, ToolContext
from sessiontree.contracts.tools.decorator import FunctionTool, tool
from sessiontree.contracts.tools.schema_tool import schema_tool
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Stripped
from sessiontree.schema.compiled import compile_tool
from sessiontree.schema.derive import derive_schema

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path


class NoStatus:
    """A session that tells nothing of itself."""

    async def report(self) -> SessionReport:
        raise ExecutionError("no status here")


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    """The context of a call in a session that holds nothing."""
    rights = SessionRights("main", "default", SessionKind.MAIN, tmp_path, AgentConfig(), NoStatus())
    return ToolContext(rights, "call-1", CallSignals(deadline=float("inf")))


@tool
def repeat(text: str, times: int = 2, *, mark: Literal["-", "+"] = "-") -> str:
    """Repeat a text.

    The copies are joined by the mark.

    Args:
        text: What to repeat; it may be
            long.
        times (int): How often: at least once.
        mark: Goes between.

    Returns:
        The copies.
    """
    return mark.join([text] * times)


def test_function_becomes_a_tool_of_its_signature_and_docstring() -> None:
    """Name, description without sections, parameters with descriptions and defaults."""
    assert isinstance(repeat, FunctionTool)
    assert repeat.name == "repeat"
    assert repeat.description == "Repeat a text.\n\nThe copies are joined by the mark."
    assert derive_schema(repeat) == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to repeat; it may be long."},
            "times": {"type": "integer", "description": "How often: at least once.", "default": 2},
            "mark": {"type": "string", "description": "Goes between.", "enum": ["-", "+"], "default": "-"},
        },
        "required": ["text"],
        "additionalProperties": False,
    }
    with pytest.raises(ModelError):
        repeat.Params.model_validate({"text": "a", "other": 1})


async def test_function_runs_with_validated_arguments(ctx: ToolContext) -> None:
    """What it returns is output and details; the function itself stays callable."""
    params, _ = compile_tool(repeat).validate({"text": "a", "times": "3"})
    result = await repeat.execute(params, ctx)
    assert result == ToolResult(output="a-a-a", details="a-a-a")
    assert repeat.function("a", 1) == "a"


@pytest.mark.covers("A5", "RGT3")
def test_tool_that_says_nothing_is_dangerous() -> None:
    """Elevated, and not for Workers."""
    assert repeat.tier is PermissionTier.ELEVATED
    assert repeat.kinds == MAIN_AND_BRANCH
    assert (repeat.capabilities, repeat.timeout_s, repeat.idempotent, repeat.sequential, repeat.aliases) == (
        frozenset(),
        None,
        False,
        False,
        (),
    )


@pytest.mark.covers("S1")
def test_every_setting_reaches_the_tool() -> None:
    """Capabilities may be given by name or as they are imported."""

    @tool(
        name="look-up",
        tier=PermissionTier.READ_ONLY,
        kinds=[SessionKind.WORKER, SessionKind.MAIN],
        capabilities=[WEB, "memory"],
        timeout_s=2.5,
        idempotent=True,
        sequential=True,
        aliases=["find"],
    )
    def look_up(word: str) -> str:
        """Look a word up."""
        return word

    assert look_up.name == "look-up"
    assert look_up.tier is PermissionTier.READ_ONLY
    assert look_up.kinds == {SessionKind.WORKER, SessionKind.MAIN}
    assert look_up.capabilities == {"web", "memory"}
    assert (look_up.timeout_s, look_up.idempotent, look_up.sequential, look_up.aliases) == (
        2.5,
        True,
        True,
        ("find",),
    )
    assert repeat.timeout_s is None


async def test_sync_function_runs_in_a_thread_and_an_async_one_on_the_loop(ctx: ToolContext) -> None:
    """Neither blocks the event loop."""

    @tool
    def blocking() -> str:
        """Name the thread."""
        return threading.current_thread().name

    @tool
    async def waiting() -> str:
        """Name the thread, after a turn of the loop."""
        await asyncio.sleep(0)
        return threading.current_thread().name

    here = threading.current_thread().name
    assert (await blocking.execute(blocking.Params(), ctx)).output != here
    assert (await waiting.execute(waiting.Params(), ctx)).output == here


@pytest.mark.covers("I4")
async def test_ctx_receives_the_context_and_is_no_parameter(ctx: ToolContext) -> None:
    """Annotated or not; it may be described, too."""

    @tool
    async def where(word: str, ctx: ToolContext) -> list[str]:
        """Say where the call runs.

        Args:
            word: Said first.
            ctx: The call's context.
        """
        return [word, ctx.call_id]

    @tool
    def who(ctx) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001 - an unannotated context is what is tested
        """Say who calls."""
        return str(ctx.agent_id)

    assert list(where.Params.model_fields) == ["word"]
    assert (await where.execute(where.Params(word="a"), ctx)).output == ["a", "call-1"]
    assert (await who.execute(who.Params(), ctx)).output == "default"


async def test_result_is_returned_as_it_is_and_values_become_json(ctx: ToolContext) -> None:
    """Models and dataclasses too, wherever they sit; errors pass through."""

    class Hit(BaseModel):
        score: float

    @dataclass
    class Found:
        hits: list[Hit]
        by: dict[str, Hit]

    own = ToolResult("text", "shown", details={"a": 1})

    @tool
    def result() -> ToolResult:
        """Return a result."""
        return own

    @tool
    def found() -> tuple[Found, None]:
        """Return values of classes."""
        return Found([Hit(score=1)], {"a": Hit(score=2)}), None

    @tool
    def failing() -> None:
        """Fail."""
        raise ExecutionError("no such thing")

    assert await result.execute(result.Params(), ctx) is own
    assert (await found.execute(found.Params(), ctx)).output == [
        {"hits": [{"score": 1.0}], "by": {"a": {"score": 2.0}}},
        None,
    ]
    with pytest.raises(ExecutionError, match="no such thing"):
        await failing.execute(failing.Params(), ctx)


async def test_wrapped_function_keeps_its_signature(ctx: ToolContext) -> None:
    """Also where a plain wrapper hides that it is async."""

    def louder(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @tool
    @louder
    async def say(word: str) -> str:
        """Say a word."""
        return word

    assert (await say.execute(say.Params(word="a"), ctx)).output == "a"


def test_text_annotations_are_read_where_the_function_stands() -> None:
    """This file's annotations are all text; local classes and names of the functions around count."""

    class Item(BaseModel):
        name: Annotated[str, Stripped()]

    limit = Field(ge=1)

    def declare() -> FunctionTool[..., Any]:
        @tool(tier=PermissionTier.READ_ONLY)
        def collect(items: list[Item], count: Annotated[int, limit] = 1) -> int:
            """Collect items."""
            return collect.name.count(str(limit)) + len(items) + len(Item.__name__)

        return collect

    properties: Any = derive_schema(declare())["properties"]
    assert properties["items"]["items"]["required"] == ["name"]
    assert properties["count"]["minimum"] == 1
    assert compile_tool(declare()).validate({"items": [{"name": " a "}]})[1] == {"items": [{"name": "a"}]}


def test_cell_of_a_notebook_declares_tools() -> None:
    """Its names live in a dict that is no module, and its classes are defined alongside the function."""
    cell = (
        "from __future__ import annotations\n"
        "class Item(BaseModel):\n    name: str\n"
        "@tool\n"
        "def collect(items: list[Item]) -> int:\n    'Count items.'\n    return len(items)\n"
    )
    names: dict[str, Any] = {"BaseModel": BaseModel, "tool": tool, "__name__": "__main__"}
    exec(cell, names)  # noqa: S102 - this is how a notebook runs a cell
    assert compile_tool(names["collect"]).validate({"items": [{"name": "a"}]})[1] == {
        "items": [{"name": "a"}]
    }


def test_callers_locals_are_not_the_functions() -> None:
    """Only the function that defines it lends its names: here ``Item`` would be another one."""

    def plain(item: Item) -> str:  # type: ignore[name-defined]  # noqa: F821 - nobody here defines it
        """Take an item."""
        return str(item)

    def declare() -> FunctionTool[..., Any]:
        Item = int  # noqa: N806, F841 - a class in the caller's own names
        return tool(plain)

    with pytest.raises(ConfigError, match="name 'Item' is not defined"):
        declare()


def test_parameters_may_be_called_anything_python_allows() -> None:
    """Names that pydantic uses itself, keywords of JSON Schema, and leading underscores."""

    @tool
    def odd(
        json: str, schema: int, copy: bool, model_config: str, format: str, type: str, _private: str
    ) -> str:
        """Take odd names."""
        return json

    names = ["json", "schema", "copy", "model_config", "format", "type", "_private"]
    assert list(derive_schema(odd)["properties"]) == names  # type: ignore[arg-type]
    given: dict[str, Any] = {
        "json": "j",
        "schema": 1,
        "copy": True,
        "model_config": "m",
        "format": "f",
        "type": "t",
        "_private": "p",
    }
    params, final = compile_tool(odd).validate(given)
    assert final == given
    assert asyncio.run(odd.execute(params, None)).output == "j"  # type: ignore[arg-type]


def test_field_declared_in_python_wins_over_the_docstring() -> None:
    """``Field`` in Annotated or as the default keeps its bounds and words."""

    @tool
    def bounded(a: Annotated[int, Field(ge=1, description="Mine.")], b: int = Field(3, le=5)) -> int:
        """Add.

        Args:
            a: Not this.
            b: Up to five.
        """
        return a + b

    assert derive_schema(bounded)["properties"] == {
        "a": {"type": "integer", "description": "Mine.", "minimum": 1},
        "b": {"type": "integer", "description": "Up to five.", "default": 3, "maximum": 5},
    }


def no_annotation(word) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the mistake
    """Do it."""


def no_docstring(word: str) -> str:  # noqa: D103 - the mistake
    return word


def only_sections(word: str) -> None:
    """Returns:
    Nothing: this says what comes back, not what is done.
    """  # noqa: D205 - the mistake


def stale_docstring(word: str) -> None:  # noqa: D417 - the mistake
    """Do it.

    Args:
        wort: Said.
    """


def variadic(*words: str) -> None:
    """Do it."""


def positional(word: str, /) -> None:
    """Do it."""


def for_type_checkers(number: Decimal) -> None:
    """Do it."""


def misspelt(word: "str |") -> None:  # type: ignore[valid-type]  # noqa: F722 - the mistake
    """Do it."""


def misnamed(context: ToolContext) -> None:
    """Do it."""


def impossible(word: threading.Lock) -> None:
    """Do it."""


def yielding(word: str) -> Iterator[str]:
    """Do it."""
    yield word


async def streaming(word: str) -> AsyncIterator[str]:
    """Do it."""
    yield word


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_annotation, "write `word: str`"),
        (no_docstring, "has no docstring"),
        (only_sections, "has no docstring"),
        (stale_docstring, "describes wort, but the function takes word"),
        (variadic, "write it as an ordinary one"),
        (positional, "write it as an ordinary one"),
        (for_type_checkers, "not only for type checkers"),
        (misspelt, "cannot be read"),
        (misnamed, "call it 'ctx'"),
        (impossible, "can't form a model"),
        (yielding, "return one value"),
        (streaming, "return one value"),
        (len, "@tool takes a function"),
        (BaseModel, "@tool takes a function"),
    ],
)
def test_function_that_makes_no_tool_is_refused_with_the_fix(function: Callable[..., Any], said: str) -> None:
    """ConfigError, when the module is imported."""
    with pytest.raises(ConfigError) as caught:
        tool(function)
    assert said in str(caught.value)
    assert str(caught.value).count("tool '") <= 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "not a name"}, "give 1 to 64 letters"),
        ({"capabilities": ["root"]}, "no capability is called"),
        ({"timeout_s": 0}, "timeout_s is 0; give seconds above 0"),
        ({"timeout_s": float("nan")}, "timeout_s is nan; give seconds above 0"),
        ({"kinds": [SessionKind.WORKER]}, "a Worker only observes"),
    ],
)
def test_setting_that_cannot_be_is_refused_with_the_fix(settings: dict[str, Any], said: str) -> None:
    """The same checks as of any tool, at the same moment."""

    def fine(word: str) -> str:
        """Do it."""
        return word

    with pytest.raises(ConfigError) as caught:
        tool(**settings)(fine)
    assert said in str(caught.value)


async def test_tool_is_made_again_from_its_function_and_settings(ctx: ToolContext) -> None:
    """How it travels to another process: its class and model are built there again."""

    class Item(BaseModel):
        name: str

    @tool(name="count", aliases=["tally"], tier=PermissionTier.WORKSPACE)
    def count_items(items: list[Item]) -> int:
        """Count items."""
        return len(items)

    make, parts = count_items.__reduce__()
    again = make(*parts)
    assert again is not count_items
    assert (again.name, again.aliases, again.tier) == ("count", ("tally",), PermissionTier.WORKSPACE)
    assert compile_tool(again).digest == compile_tool(count_items).digest
    params, _ = compile_tool(again).validate({"items": [{"name": "a"}]})
    assert (await again.execute(params, ctx)).output == 1


@tool
def triple(number: int, *, note: str = "") -> str:
    """Triple a number."""
    return f"{3 * number}{note}"


@tool(tier=PermissionTier.READ_ONLY)
async def triple_later(number: int, ctx: ToolContext) -> int:
    """Triple a number in a while."""
    await asyncio.sleep(0)
    return 3 * number + len(ctx.session_id)


@schema_tool({"type": "object"})
def count(arguments: dict[str, Any]) -> int:
    """Count the arguments."""
    return len(arguments)


async def test_tool_is_still_the_function(ctx: ToolContext) -> None:
    """Who wrote it can test it, and other code may use it: as it was written, here and after a journey."""
    make, plan = triple.__reduce__()
    again: Any = make(*plan)
    for each in (triple, again):
        assert each(2) == "6"
        assert each(number=2, note="!") == "6!"
    with pytest.raises(TypeError):
        again("a", "b", "c")
    assert await triple_later(2, ctx) == 6 + len(ctx.session_id)
    assert count({"a": 1}) == 1


async def test_error_of_a_called_tool_is_the_functions_own() -> None:
    """Nothing wraps it: that is for calls of sessions."""

    @tool
    def breaks() -> None:
        """Break."""
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        breaks()
