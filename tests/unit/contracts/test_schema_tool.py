"""Tools made of a function and a JSON Schema."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.schema_tool import SchemaTool, schema_tool
from sessiontree.contracts.tools.tool import Retry
from sessiontree.schema.compiled import compile_tool
from sessiontree.testing.context import call_tool, make_context

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@schema_tool(SCHEMA, tier=PermissionTier.READ_ONLY, retry=Retry(2), aliases=["half"], timeout_s=3)
def halve(params: dict[str, Any]) -> float:
    """Halve a number."""
    return float(params["n"]) / 2


@pytest.mark.covers("A43")
async def test_function_and_a_schema_become_a_tool(tmp_path: Path) -> None:
    """Name and description are the function's; it gets a dict and runs in a thread where it is plain."""
    assert isinstance(halve, SchemaTool)
    assert (halve.name, halve.description, halve.aliases) == ("halve", "Halve a number.", ("half",))
    assert (halve.tier, halve.retry, halve.timeout_s) == (PermissionTier.READ_ONLY, Retry(2), 3)
    assert compile_tool(halve).validate({"n": "3"}) == ({"n": 3}, {"n": 3})
    assert (await call_tool(halve, make_context(tmp_path), n=3)).output == 1.5
    assert halve.function({"n": 4}) == 2


async def test_context_and_a_result_are_taken_as_they_are(tmp_path: Path) -> None:
    """As those of any tool of a function; a wrapper around an async one is awaited."""

    @schema_tool(SCHEMA, name="who", description="Tell.")
    async def ask(params: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Say who asks."""
        return ToolResult([ctx.session_id, params["n"]])

    @schema_tool(SCHEMA)
    @functools.wraps(ask.function)
    def wrapped(*given: Any, **named: Any) -> Any:
        return ask.function(*given, **named)

    assert (await call_tool(ask, make_context(tmp_path), n=1)).output == ["main", 1]
    assert (ask.name, ask.description) == ("who", "Tell.")
    assert (wrapped.name, wrapped.description) == ("ask", "Say who asks.")
    assert (await call_tool(wrapped, make_context(tmp_path), n=2)).output == ["main", 2]


def test_it_is_made_again_from_its_function_and_settings() -> None:
    """How it travels to another process: its class is built there again."""
    make, parts = halve.__reduce__()
    again = make(*parts)
    assert again is not halve
    assert compile_tool(again).digest == compile_tool(halve).digest
    assert (again.name, again.retry, again.tier) == (halve.name, halve.retry, halve.tier)


def nothing() -> None:
    """Do."""


def by_name(n: int, m: int) -> None:
    """Do."""


def keyword(*, n: int) -> None:
    """Do."""


def yields(params: dict[str, Any]) -> Iterator[int]:
    """Do."""
    yield 1


@pytest.mark.parametrize(
    ("function", "settings", "said"),
    [
        (lambda params: params, {"name": "silent"}, "description is ''; give text with something in it"),
        (nothing, {}, "takes nothing"),
        (by_name, {}, "n: 'int', m: 'int'"),
        (keyword, {}, "as one dict"),
        (yields, {}, "yields"),
        (dict, {}, "derive a class from RawTool"),
        (halve.function, {"timeout_s": 0}, "timeout_s"),
        (halve.function, {"capabilities": ["magic"]}, "no capability is called"),
        (halve.function, {"name": "ha lve"}, "letters, digits"),
        (halve.function, {"retry": Retry()}, "runs once"),
    ],
)
def test_what_makes_no_tool_is_refused_with_the_fix(
    function: Callable[..., Any], settings: dict[str, Any], said: str
) -> None:
    """Where it is declared."""
    with pytest.raises(ConfigError, match=said):
        schema_tool(SCHEMA, **settings)(function)


@pytest.mark.parametrize("parameters", ["object", ["type"], None, 5])
def test_parameters_that_are_no_mapping_are_refused(parameters: Any) -> None:
    """At once, with the fix."""
    with pytest.raises(ConfigError, match="give a JSON Schema as a mapping"):
        schema_tool(parameters)
