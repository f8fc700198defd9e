"""The system prompt: made from the tools that survived a session's rights, the same text every time (A3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.kinds import SessionKind
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.session.decide import build_system_prompt
from sessiontree_tools import builtin_tools

GOLDEN = Path(__file__).parent / "golden"
IDS = {SessionKind.MAIN: "main", SessionKind.BRANCH: "main/b1", SessionKind.WORKER: "main/b1/w2"}


def prompt_of(kind: SessionKind, *, typed: bool = False) -> str:
    """Return the prompt of a session that holds every built-in tool its kind may."""
    table = ToolTable(builtin_tools())
    held = table.select_held(kind, [entry.name for entry in table])
    tools = [entry.name for entry in table if entry.name in held]
    spec = SessionSpec(
        session_id=IDS[kind],
        kind=kind,
        parent=None if kind is SessionKind.MAIN else IDS[kind].rpartition("/")[0],
        depth=IDS[kind].count("/"),
        agent="default",
        task="look",
        label=None,
        via="root",
        tools=tuple(sorted(held)),
        result_schema={"type": "integer"} if typed else None,
        rules=(),
        approver=None,
        owns_channel=False,
        budget=None,
        key=None,
    )
    return build_system_prompt(spec, "Do what is asked.", tools)


@pytest.mark.covers("A3")
@pytest.mark.parametrize("kind", list(SessionKind))
def test_prompt_of_a_kind_is_the_golden_one(kind: SessionKind) -> None:
    """A change of words is a change of behaviour: it is made here too, on purpose."""
    assert prompt_of(kind) == GOLDEN.joinpath(f"{kind}.txt").read_text().rstrip("\n")


@pytest.mark.parametrize("kind", list(SessionKind))
def test_prompt_names_the_tools_the_kind_holds_and_no_other(kind: SessionKind) -> None:
    """The prompt and the dispatcher have one source."""
    table = ToolTable(builtin_tools())
    held = table.select_held(kind, [entry.name for entry in table])
    (line,) = (line for line in prompt_of(kind).splitlines() if line.startswith("Your tools: "))
    assert set(line.removeprefix("Your tools: ").removesuffix(".").split(", ")) == held


def test_typed_result_is_asked_for() -> None:
    """Only a session whose parent gave a schema is asked to reply with JSON."""
    assert "one JSON value" in prompt_of(SessionKind.WORKER, typed=True)
    assert "one JSON value" not in prompt_of(SessionKind.WORKER)
