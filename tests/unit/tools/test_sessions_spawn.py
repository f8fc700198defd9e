"""``sessions_spawn``: children, started once and never waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ExecutionError, LimitExceeded, PermissionDenied, ValidationError
from sessiontree.contracts.handles.ports import SpawnRequest
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.testing.context import RecordingSessions, call_tool, make_context
from sessiontree_tools.sessions.sessions import SessionsSpawn, SpawnBudget


@pytest.mark.covers("S10")
async def test_full_request_reaches_the_tree(tmp_path: Path) -> None:
    """Every parameter arrives, and the answer names the child at once."""
    sessions = RecordingSessions("main/b1")
    ctx = make_context(tmp_path, SessionKind.BRANCH, sessions=sessions, call_id="call-7")
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    result = await call_tool(
        SessionsSpawn(),
        ctx,
        kind="worker",
        task=" look at a.py ",
        label="look",
        agent="reviewer",
        result_schema=schema,
        budget={"tokens": 1000, "wall_s": 2.5},
    )
    request = SpawnRequest(
        kind=SessionKind.WORKER,
        task=" look at a.py ",
        label="look",
        agent="reviewer",
        result_schema=schema,
        budget=Budget(tokens=1000, wall_s=2.5),
    )
    assert sessions.spawned == {"call-7": request}
    assert result.output == {"status": "accepted", "session_id": "main/b1/w1", "kind": "worker"}
    assert result.display == "started main/b1/w1 (look)"


async def test_repeated_call_starts_no_second_child(tmp_path: Path) -> None:
    """The call id is the key: what a crash repeats gives the same child, another call another one."""
    sessions = RecordingSessions()
    answers = [
        (await call_tool(SessionsSpawn(), ctx, kind="branch", task="think")).output
        for ctx in (
            make_context(tmp_path, sessions=sessions, call_id=call_id) for call_id in ("one", "one", "two")
        )
    ]
    assert answers[0] == answers[1] != answers[2]
    assert list(sessions.spawned) == ["one", "two"]


async def test_least_request_leaves_everything_open(tmp_path: Path) -> None:
    """What is left out is None: the parent's agent, free text, the parent's budget."""
    sessions = RecordingSessions()
    for call_id, more in (("one", {}), ("two", {"label": "", "agent": ""}), ("three", {"budget": None})):
        ctx = make_context(tmp_path, sessions=sessions, call_id=call_id)
        await call_tool(SessionsSpawn(), ctx, kind="branch", task="think", **more)
    assert list(sessions.spawned.values()) == [SpawnRequest(SessionKind.BRANCH, "think")] * 3


async def test_refusal_of_the_tree_is_told_to_the_model(tmp_path: Path) -> None:
    """A limit comes back as an error that names it, and the session goes on."""
    sessions = RecordingSessions(refusal=LimitExceeded("main", "max_children", 9, 8))
    with pytest.raises(ExecutionError, match=r"no worker was started: .*max_children is 8"):
        await call_tool(
            SessionsSpawn(), make_context(tmp_path, sessions=sessions), kind="worker", task="look"
        )
    assert sessions.spawned == {}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"kind": "main"}, "/kind"),
        ({"kind": "Worker"}, "/kind"),
        ({"task": ""}, "/task"),
        ({"task": " \n"}, "/task"),
        ({"task": None}, "/task"),
        ({"label": "x" * 121}, "/label"),
        ({"result_schema": "object"}, "/result_schema"),
        ({"budget": {"tokens": -1}}, "/budget/tokens"),
        ({"budget": {"wall_s": 0}}, "/budget/wall_s"),
        ({"budget": {"minutes": 3}}, "/budget/minutes"),
        ({"budget": 5}, "/budget"),
        ({"wait": True}, "/wait"),
    ],
)
async def test_bad_request_is_refused_and_starts_nothing(
    tmp_path: Path, arguments: dict[str, Any], field: str
) -> None:
    """Each mistake is a validation error that points at its place."""
    sessions = RecordingSessions()
    with pytest.raises(ValidationError) as caught:
        await call_tool(
            SessionsSpawn(),
            make_context(tmp_path, sessions=sessions),
            **({"kind": "worker", "task": "look"} | arguments),
        )
    assert caught.value.field == field
    assert sessions.spawned == {}


async def test_session_that_spawns_nothing_is_refused(tmp_path: Path) -> None:
    """Without the handle there is nobody to ask."""
    with pytest.raises(PermissionDenied, match="holds no sessions"):
        await call_tool(SessionsSpawn(), make_context(tmp_path, sessions=None), kind="worker", task="look")


def test_budget_has_the_fields_of_the_trees_budget() -> None:
    """The model can cap what the tree can cap, under the same names, and by the same rules."""
    ours, theirs = SpawnBudget.model_fields, Budget.model_fields
    assert {name: (field.annotation, field.metadata) for name, field in ours.items()} == {
        name: (field.annotation, field.metadata) for name, field in theirs.items()
    }
