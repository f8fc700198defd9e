"""``sessiontree tree``: a tree read from its journal alone."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    Rule,
    ScriptedModel,
    SessionTree,
    ToolResult,
    script_call,
    tool,
)
from sessiontree.api.agents.approval_modes import describe_mode
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.journal.journal import Journal
from tests.system.cli.command_fixtures import Program

COUNT = {"type": "integer", "minimum": 0}
TEXT = {"type": "string"}
MAYBE = {"type": ["integer", "null"]}


def closed(**members: Any) -> dict[str, Any]:
    """Return the schema of an object of exactly these members."""
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


SESSION = closed(
    session=TEXT,
    kind={"enum": ["main", "branch", "worker"]},
    status={"enum": ["active", "suspended", "completed", "failed", "cancelled", "expired"]},
    label={"type": ["string", "null"]},
    parent={"type": ["string", "null"]},
    depth=COUNT,
    agent=TEXT,
    system_tier={"enum": ["allow", "ask", "deny"]},
    exec_security={"enum": ["full", "safe-bin", "paranoid", None]},
    delegates={"type": "array", "items": {"type": "string"}},
    turns=COUNT,
    input_tokens=COUNT,
    output_tokens=COUNT,
    cost_usd={"type": "number"},
    tool_calls=COUNT,
    started_at_ms=COUNT,
    ended_at_ms=MAYBE,
    summary={"type": "string", "maxLength": 400},
)
APPROVAL = closed(
    request_id=TEXT,
    session=TEXT,
    tool=TEXT,
    arguments={"type": "object"},
    tier={"enum": ["ReadOnly", "Workspace", "System", "Elevated"]},
    asked_by={"type": "array", "maxItems": 0},
    asked_at_ms=COUNT,
    decision={"enum": ["open", "approved", "denied", "expired", "cancelled"]},
    by=TEXT,
    reason=TEXT,
)
TREE = closed(
    tree=TEXT,
    purpose=TEXT,
    workspace=TEXT,
    version=TEXT,
    model=TEXT,
    mode={"enum": ["auto", "smart", "always", "never"]},
    created_at_ms=COUNT,
    finished={"type": "boolean"},
    forks={"type": "array", "items": closed(tree=TEXT, at=COUNT)},
    last_seq=COUNT,
    damage={"anyOf": [{"type": "null"}, closed(last_good_seq=COUNT, bad_segment=MAYBE, reason=TEXT)]},
    sessions={"type": "array", "items": SESSION, "minItems": 1},
    approvals={"type": "array", "items": APPROVAL},
    totals=closed(
        sessions=COUNT,
        live=COUNT,
        turns=COUNT,
        input_tokens=COUNT,
        output_tokens=COUNT,
        cost_usd={"type": "number"},
        tool_calls=COUNT,
        approvals=COUNT,
    ),
    state_dir=TEXT,
)


@tool(tier=PermissionTier.ELEVATED)
def sweep(place: str) -> ToolResult:
    """Sweep a place.

    Args:
        place: Where.
    """
    return ToolResult(output=f"swept {place}")


MODEL = ScriptedModel(
    {
        "main": [
            [script_call("sweep", place="hall"), script_call("sweep", place="cellar\u202e")],
            [script_call("sessions_spawn", kind="worker", task="look", label="eyes\x1b[31m")],
            "started",
            "done",
        ],
        "main/w1": [script_call("read", path="notes.txt"), "a note\n" * 200],
    }
)


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[Path]:
    """A state directory whose tree had two approvals and a Worker, and is still open in this process."""
    (tmp_path / "notes.txt").write_text("a note\n")
    place = tmp_path / "journal"
    rules = [
        Rule(tool="sweep", where={"/place": "hall"}, answer="approve"),
        Rule(tool="sweep", answer="deny"),
    ]
    tree = SessionTree(
        tmp_path,
        model=MODEL,
        tools=[sweep],
        approver=rules,
        state_dir=place,
        backend="local",
        purpose="spring cleaning",
        agents={"default": AgentSpec(config=AgentConfig(exec_security="safe-bin"))},
    )
    async with tree:
        await tree.main.send("go")
        await tree.session("main/w1").result()
        yield place


async def test_json_tells_sessions_approvals_and_totals(program: Program, state: Path) -> None:
    """The JSON form fits its schema and tells who did what, also while another process writes."""
    done = program.call("tree", "--state-dir", state, "--json")
    assert (done.code, done.err) == (0, "")
    shown = json.loads(done.out)
    jsonschema.validate(shown, TREE)
    assert (shown["purpose"], shown["finished"]) == ("spring cleaning", False)
    main, worker = shown["sessions"]
    assert (main["session"], main["tool_calls"]) == ("main", 3)
    assert (worker["session"], worker["status"], worker["parent"]) == ("main/w1", "completed", "main")
    assert worker["label"] == "eyes\x1b[31m"
    assert [each["exec_security"] for each in (main, worker)] == ["safe-bin", None]
    assert [(each["decision"], each["by"]) for each in shown["approvals"]] == [
        ("approved", "rule"),
        ("denied", "rule"),
    ]
    assert shown["totals"]["sessions"] == 2
    assert shown["totals"]["turns"] == sum(session["turns"] for session in shown["sessions"])


@pytest.mark.covers("REL-L7")
async def test_text_is_safe_to_look_at(program: Program, state: Path) -> None:
    """Labels and arguments are shown with every control and bidirectional character escaped."""
    done = program.call("tree", "--state-dir", state)
    assert (done.code, done.err) == (0, "")
    assert "eyes\\u{1b}[31m" in done.out
    assert "cellar\\u{202e}" in done.out
    assert done.out.replace("\n", "").isprintable()
    assert any(line.startswith("2 sessions (1 not ended), ") for line in done.lines)
    assert f"approvals: {describe_mode('always')}, commands: safe-bin" in done.lines


async def test_trees_are_listed_and_named(program: Program, state: Path) -> None:
    """``--list`` names all trees; ``--tree`` shows one of them; an unknown id is one typed line."""
    # the list runs a loop of its own, and this thread has one
    told = await asyncio.to_thread(program.call, "tree", "--list", "--json", "--state-dir", state)
    (listed,) = json.loads(told.out)["trees"]
    assert (listed["purpose"], listed["task"], listed["state"]) == ("spring cleaning", "go", "live")
    shown = await asyncio.to_thread(program.call, "tree", "--list", "--state-dir", state)
    assert listed["tree"] in shown.out
    assert "live" in shown.out
    assert "spring cleaning: go" in shown.out
    named = program.call("tree", "--tree", listed["tree"], "--json", "--state-dir", state)
    assert json.loads(named.out)["last_seq"] >= listed["last_seq"], (
        "the tree is still open and may have gone on"
    )
    done = program.call("tree", "--tree", "t0000000000000000", "--state-dir", state)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("sessiontree: TreeNotFound: ")
    assert len(done.err.splitlines()) == 1
    # resume runs a loop of its own, and this thread has one
    done = await asyncio.to_thread(program.call, "resume", listed["tree"], "--state-dir", state)
    assert done.err.startswith(f"sessiontree: ConfigError: tree {listed['tree']} is not a survey")


@pytest.mark.slow
def test_damage_is_told_with_how_far_it_could_be_read(program: Program, ground: Path, tmp_path: Path) -> None:
    """A journal damaged in the middle shows what comes before; one damaged at its head is a typed error."""
    place = tmp_path / "journal"
    assert program.call("survey", ground, "--state-dir", place).code == 0
    whole = json.loads(program.call("tree", "--json", "--state-dir", place).out)
    with sqlite3.connect(place / "journal.db") as database:
        database.execute("UPDATE segments SET body = zeroblob(9) WHERE n = 8")
    database.close()
    done = program.call("tree", "--json", "--state-dir", place)
    shown = json.loads(done.out)
    jsonschema.validate(shown, TREE)
    assert shown["damage"]["bad_segment"] == 8
    assert 0 < shown["damage"]["last_good_seq"] == shown["last_seq"] < whole["last_seq"]
    assert not shown["finished"]
    (place / "journal.db").write_bytes(b"nothing of a database" * 500)
    done = program.call("tree", "--state-dir", place)
    assert done.code == 2
    assert done.err.startswith("sessiontree: JournalCorrupt: ")


def test_place_without_a_tree_is_one_typed_line(program: Program, tmp_path: Path) -> None:
    """No journal, an empty one, and a missing workspace are distinguished, and nothing is made on the way."""
    done = program.call("tree", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("sessiontree: nothing ran here yet: no journal is here")
    assert len(done.err.splitlines()) == 1
    assert not program.state_home.exists()
    Journal.open(tmp_path / "journal").release()
    done = program.call("tree", "--state-dir", tmp_path / "journal")
    assert done.err.startswith("sessiontree: nothing ran here yet: its journal holds no tree")
    done = program.call("tree", tmp_path / "nowhere")
    assert done.err.startswith("sessiontree: ConfigError: workspace ")
    done = program.call("tree", "--state-dir", "~nobody-of-this-name/journal")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("sessiontree: ConfigError: --state-dir '~nobody-of-this-name/journal' ")
