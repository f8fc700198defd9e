"""Approval modes: a mode that is named governs System calls too, and the table of the documents is true."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    ApprovalRequest,
    PermissionDenied,
    PolicyConfig,
    QueueChannel,
    ScriptedModel,
    tool,
)
from sessiontree.api.agents.approval_modes import (
    CALLS,
    MODES,
    decide_outcome,
    describe_commands,
    format_mode_table,
)
from sessiontree.contracts.facts.tree_facts import ApprovalDecided
from sessiontree.contracts.kinds import SystemAnswer
from sessiontree.contracts.recorded.approvals import ApprovalMode
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener

NAMED: tuple[ApprovalMode | None, ...] = (None, *MODES)
MODEL = ScriptedModel(["fine"])
TYPED: dict[str, tuple[str, dict[str, Any]]] = {
    "ReadOnly": ("read", {"path": "precious"}),
    "Workspace": ("write", {"path": "made", "content": "x"}),
    "System, harmless": ("exec", {"command": "wc -l precious"}),
    "System, other": ("exec", {"command": "rm precious"}),
    "Elevated": ("launch", {}),
}
"""A call of each kind."""


@tool
def launch() -> str:
    """Launch; no tier is declared, so every call is Elevated."""
    return "launched"


async def happens(open_tree: Opener, named: ApprovalMode | None, *, with_person: bool) -> dict[str, str]:
    """Return what happens to one real call of each kind; whoever is asked says yes."""
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.tool)
        return True

    channel: dict[str, Any] = {"approver": approve} if with_person else {"channel": None}
    found: dict[str, str] = {}
    async with open_tree(MODEL, tools=[launch], approvals=named, **channel) as tree:
        for made, (name, arguments) in TYPED.items():
            (open_tree.workspace / "precious").write_text("gold\n")
            asked.clear()
            before = len(await facts_of(tree, ApprovalDecided))
            try:
                await tree.main.call(name, arguments)
            except PermissionDenied:
                found[made] = "refused"
                assert (open_tree.workspace / "precious").exists()
            else:
                decided = [fact.by for fact in await facts_of(tree, ApprovalDecided)][before:]
                found[made] = "asks" if asked else "approved" if decided == ["mode"] else "runs"
    return found


def promised(named: ApprovalMode | None, *, with_person: bool) -> dict[str, str]:
    """Return what the table says of each kind of call."""
    return {made: decide_outcome(named, made, with_person=with_person) for made in CALLS}


@pytest.mark.slow
@pytest.mark.covers("A12", "APP1", "APP13")
@pytest.mark.parametrize("variant", ["local"])
async def test_each_cell_of_the_table_is_what_happens(open_tree: Opener) -> None:
    """A real call for each mode, named or not, and tier, with a person and without."""
    assert tuple(TYPED) == CALLS
    for named in NAMED:
        for with_person in (True, False):
            found = await happens(open_tree, named, with_person=with_person)
            assert found == promised(named, with_person=with_person), (named, with_person)


async def test_named_mode_asks_about_a_command(open_tree: Opener) -> None:
    """On every backend: under ``smart`` a command that changes something waits, for Main and for a child."""
    async with open_tree(MODEL, approvals="smart", channel=None) as tree:
        branch = await tree.main.spawn("branch", "go on")
        for session in (tree.main, branch):
            assert session.status().system_tier == "ask"
            with pytest.raises(PermissionDenied):
                await session.call("message", {"text": "hello"})
    tree = await open_tree.resume(tree.tree_id, MODEL, channel=None)
    async with tree:
        later = await tree.main.spawn("branch", "go on")
        assert later.status().system_tier == "ask"


@pytest.mark.parametrize("variant", ["local"])
@pytest.mark.parametrize(
    ("options", "tier"),
    [
        ({}, "ask"),
        ({"policy": PolicyConfig(system_tier="allow")}, "allow"),
        ({"policy": PolicyConfig(system_tier="deny")}, "deny"),
        ({"policy": PolicyConfig(after_untrusted="ask")}, "ask"),
        ({"policy": PolicyConfig(system_tier_by_agent={"default": "allow"})}, "allow"),
        ({"policy": PolicyConfig(system_tier_by_group={"family": "allow"})}, "ask"),
        ({"policy": PolicyConfig(system_tier_by_group={"family": "allow"}), "group": "family"}, "allow"),
        ({"agents": {"default": AgentSpec(config=AgentConfig(system_tier="allow"))}}, "allow"),
        ({"agents": {"default": AgentSpec(config=AgentConfig(prompt="Be brief."))}}, "ask"),
        ({"channel": QueueChannel(system_tier="allow")}, "ask"),
        ({"channel": QueueChannel(system_tier="deny")}, "deny"),
        (
            {
                "policy": PolicyConfig(system_tier="allow"),
                "agents": {"default": AgentSpec(config=AgentConfig(system_tier="ask"))},
            },
            "ask",
        ),
    ],
)
@pytest.mark.parametrize("named", ["smart", "always", "never"])
async def test_what_the_owner_writes_counts_before_the_mode(
    open_tree: Opener, named: ApprovalMode, options: dict[str, Any], tier: str
) -> None:
    """Only where nothing is written about System calls, a named mode decides; a channel only narrows."""
    async with open_tree(MODEL, approvals=named, **options) as tree:
        assert tree.main.status().system_tier == tier


@pytest.mark.parametrize(
    ("mode", "tier", "said"),
    [
        ("always", "allow", "run unasked"),
        ("never", "allow", "run unasked"),
        ("always", "ask", "asked about each time"),
        ("smart", "ask", "else asked about"),
        ("never", "ask", "refused"),
        ("auto", "ask", "approved by the mode"),
        ("always", "deny", "refused"),
    ],
)
def test_screen_says_what_becomes_of_commands(mode: str, tier: SystemAnswer, said: str) -> None:
    """In words that are true for the mode in force."""
    assert said in describe_commands(mode, tier)


def test_documents_show_the_table() -> None:
    """The table in docs/approvals.md is the one that the code makes."""
    page = Path(sys.modules["sessiontree"].__file__ or "").parents[1] / "docs" / "approvals.md"
    assert format_mode_table() in page.read_text("utf-8")
