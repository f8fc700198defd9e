"""What a tool must declare: each slip is refused before any session exists, with the way to mend it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import WRITER
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import ALL_KINDS, MAIN_AND_BRANCH, RawTool, Tool, check_tool
from sessiontree.contracts.values.jsonable import JsonValue


class Empty(BaseModel):
    """No parameters."""


class Good(Tool[Empty]):
    """A tool as it should be."""

    name = "good"
    description = "Does good."
    Params = Empty  # type: ignore[mutable-override]

    async def execute(self, params: Empty, ctx: ToolContext) -> ToolResult:
        """Do nothing."""
        return ToolResult()


class Raw(RawTool):
    """A tool with a schema of its own."""

    name = "raw"
    description = "Does it raw."
    parameters: Mapping[str, JsonValue] = {"type": "object"}

    async def execute(self, params: Any, ctx: ToolContext) -> ToolResult:
        """Do nothing."""
        return ToolResult()


def changed(**members: Any) -> Tool[Any]:
    """Return a good tool with some members changed; None removes one."""
    made: Tool[Any] = type("Changed", (Good,), members)()
    return made


def test_good_tools_pass() -> None:
    """A model or a schema, and nothing else, is asked for."""
    check_tool(Good())
    check_tool(Raw())


def test_class_whose_members_changed_is_checked_again() -> None:
    """Trees have tools of the same classes: a check that passed counts while nothing is another object."""
    tool = changed()
    check_tool(tool)
    check_tool(tool)
    type(tool).capabilities = frozenset({"anything"})
    with pytest.raises(ConfigError, match="no capability"):
        check_tool(tool)
    type(tool).capabilities = frozenset()
    check_tool(tool)
    vars(tool)["description"] = ""
    with pytest.raises(ConfigError, match="description"):
        check_tool(tool)


def test_member_that_is_computed_is_checked_each_time() -> None:
    """Such a class can't be known by its members."""
    answers = ["Does good.", "Does good.", ""]
    tool = changed(description=property(lambda tool: answers.pop(0)))
    with pytest.raises(ConfigError, match="description"):
        for _ in range(4):
            check_tool(tool)


@pytest.mark.parametrize("name", ["a", "A_b-9", "x" * 64, "a__b"])
def test_names_that_providers_take_pass(name: str) -> None:
    """1 to 64 letters, digits, '_' and '-', a letter first."""
    check_tool(changed(name=name))


@pytest.mark.parametrize(
    "name", ["", "x" * 65, "9lives", "_a", "-a", "a b", "a.b", "a/b", "naïve", "ім'я", "a\n", None, 3]
)
def test_other_names_are_refused(name: Any) -> None:
    """A provider would refuse the whole request for one such name."""
    with pytest.raises(ConfigError, match="give 1 to 64 letters"):
        check_tool(changed(name=name))


def test_tool_without_a_name_is_refused() -> None:
    """The class says so, because the tool has no name yet."""

    class Nameless(Tool[Empty]):
        description = "Does it."
        Params = Empty  # type: ignore[mutable-override]

        async def execute(self, params: Empty, ctx: ToolContext) -> ToolResult:
            return ToolResult()

    with pytest.raises(ConfigError, match="tool Nameless: name is None; give 1 to 64 letters"):
        check_tool(Nameless())


@pytest.mark.parametrize("description", ["", None])
def test_tool_without_a_description_is_refused(description: Any) -> None:
    """The model chooses tools by what they say they do."""
    with pytest.raises(ConfigError, match="the model chooses tools by it"):
        check_tool(changed(description=description))


async def _legacy(self: object, tool_call_id: str, params: Empty, signal: Any, on_update: Any) -> ToolResult:
    return ToolResult()


async def _without_context(self: object, params: Empty) -> ToolResult:
    return ToolResult()


async def _anything(self: object, *arguments: Any, **named: Any) -> ToolResult:
    return ToolResult()


async def _by_name_alone(self: object, *, params: Empty, ctx: ToolContext) -> ToolResult:
    return ToolResult()


@pytest.mark.parametrize("execute", [_legacy, _without_context, _anything, _by_name_alone])
def test_another_signature_of_execute_is_refused_with_the_fix(execute: Any) -> None:
    """A legacy signature is named, and where its parameters went."""
    with pytest.raises(ConfigError) as refused:
        check_tool(changed(execute=execute))
    text = str(refused.value)
    assert "write `async def execute(self, params, ctx)`" in text
    assert "call id, progress and cancellation are ctx.call_id, ctx.update and ctx.cancelled" in text
    assert ("tool_call_id" in text) is (execute is _legacy)


def _blocking(self: object, params: Empty, ctx: ToolContext) -> ToolResult:
    return ToolResult()


def test_execute_that_blocks_is_refused() -> None:
    """A plain function would hold the session's host up."""
    with pytest.raises(ConfigError, match="must be `async def`"):
        check_tool(changed(execute=_blocking))


@pytest.mark.parametrize(
    "tool", [changed(command_in="command"), type("R", (Raw,), {"command_in": "command"})()]
)
def test_command_in_a_parameter_that_is_not_there_is_refused(tool: Tool[Any]) -> None:
    """Nobody would judge what it runs."""
    with pytest.raises(ConfigError, match="command_in is 'command', which is not one of its parameters"):
        check_tool(tool)


@pytest.mark.parametrize("params", [None, dict, {"type": "object"}, Empty(), int])
def test_parameters_that_are_no_model_are_refused(params: Any) -> None:
    """Arguments arrive as an instance of a model, so there must be one."""
    with pytest.raises(ConfigError, match=r"Params is .*; give a pydantic model"):
        check_tool(changed(Params=params))


@pytest.mark.parametrize("tier", [tier for tier in PermissionTier if tier is not PermissionTier.READ_ONLY])
def test_worker_tool_above_read_only_is_refused(tier: PermissionTier) -> None:
    """A Worker only observes."""
    with pytest.raises(
        ConfigError, match=f"declared for Workers but its tier is {tier.label}; a Worker only"
    ):
        check_tool(changed(kinds=ALL_KINDS, tier=tier))


@pytest.mark.parametrize("capability", ["writer", "shell", "channel", "memory_writer", "sessions"])
def test_worker_tool_that_needs_what_workers_lack_is_refused(capability: str) -> None:
    """A tool that says ReadOnly and needs a writer is one of the two wrong."""
    settings = {"kinds": ALL_KINDS, "tier": PermissionTier.READ_ONLY}
    with pytest.raises(ConfigError, match=f"and needs {capability}; a Worker only observes"):
        check_tool(changed(**settings, capabilities=frozenset({"reader", capability})))


@pytest.mark.parametrize("member", ["capabilities", "optional_capabilities"])
@pytest.mark.parametrize(
    ("capability", "least"),
    [
        ("reader", "READ_ONLY"),
        ("memory", "READ_ONLY"),
        ("web", "READ_ONLY"),
        ("writer", "WORKSPACE"),
        ("memory_writer", "WORKSPACE"),
        ("sessions", "WORKSPACE"),
        ("shell", "SYSTEM"),
        ("channel", "SYSTEM"),
    ],
)
def test_tier_below_that_of_its_capabilities_is_refused(capability: str, least: str, member: str) -> None:
    """It would do their work without an intent, or without the question that tier needs; others pass."""
    needed = PermissionTier[least]
    for tier in PermissionTier:
        tool = changed(tier=tier, **{member: frozenset({"reader", capability})})
        if tier >= needed:
            check_tool(tool)
            continue
        said = (
            f"its tier is {tier.label}, but it declares capability {capability!r}, whose work is "
            f"{needed.label}; declare tier {needed.label} (PermissionTier.{least}), or drop the capability"
        )
        with pytest.raises(ConfigError, match=re.escape(said)):
            check_tool(tool)


@pytest.mark.parametrize("member", ["capabilities", "optional_capabilities"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (frozenset({"wirter"}), "no capability is called 'wirter'; there are reader, memory, web, writer"),
        ("writer", "give a set of names"),
        (frozenset({WRITER}), "give a name"),
        (None, "give a set of names"),
    ],
)
def test_capabilities_that_are_none_are_refused_with_the_fix(member: str, given: Any, said: str) -> None:
    """A name that names nothing would leave the tool without its handle, at its first call."""
    with pytest.raises(ConfigError, match=f"{member}.*{said}"):
        check_tool(changed(**{member: given}))


def test_worker_tool_has_no_optional_writer_either() -> None:
    """What a Worker lacks it can't use if it is there."""
    settings = {"kinds": ALL_KINDS, "tier": PermissionTier.READ_ONLY}
    with pytest.raises(ConfigError, match="and needs writer; a Worker only observes"):
        check_tool(changed(**settings, optional_capabilities=frozenset({"writer"})))


def test_worker_tool_that_observes_passes() -> None:
    """ReadOnly with handles every kind may hold."""
    observing = frozenset({"reader", "memory", "web"})
    check_tool(changed(kinds=ALL_KINDS, tier=PermissionTier.READ_ONLY, capabilities=observing))


def test_tool_that_says_nothing_counts_as_dangerous() -> None:
    """Elevated, and not for Workers, unless it says otherwise."""
    good = Good()
    assert (good.tier, good.tier_for(Empty())) == (PermissionTier.ELEVATED, PermissionTier.ELEVATED)
    assert good.kinds == MAIN_AND_BRANCH == {SessionKind.MAIN, SessionKind.BRANCH}
    assert (good.idempotent, good.sequential, good.timeout_s) == (False, False, None)


def test_class_without_execute_is_no_tool() -> None:
    """A declaration alone cannot be made."""

    class Idle(Tool[Empty]):
        name: ClassVar[str] = "idle"

    with pytest.raises(TypeError, match="abstract"):
        Idle()  # type: ignore[abstract]
