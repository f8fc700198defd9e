"""``sessiontree tree --follow``: a running tree, read by somebody else."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sessiontree import Rule, ScriptedModel, SessionTree, ToolResult, script_call, tool
from sessiontree.cli.follow import read_facts
from sessiontree.contracts.errors import JournalCorrupt, TreeNotFound
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed
from tests.system.cli.command_fixtures import Done, Program, Terminal
from tests.system.cli.screen_fakes import Glass

COUNT = {"type": "integer", "minimum": 0}
TEXT = {"type": "string"}
MAYBE = {"type": ["string", "null"]}
ARGUMENTS = {"type": "object"}


def change(name: str, **members: Any) -> dict[str, Any]:
    """Return the schema of a change: exactly these members, and those of all changes."""
    properties = {"change": {"const": name}, "seq": COUNT, "at_ms": COUNT, "session": TEXT, **members}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


CHANGE = {
    "oneOf": [
        change("session_started", kind={"enum": ["main", "branch", "worker"]}, label=MAYBE, parent=MAYBE),
        change(
            "session_ended",
            status={"enum": ["completed", "failed", "cancelled", "expired"]},
            summary={"type": "string", "maxLength": 400},
        ),
        change("call_started", key=TEXT, tool=TEXT, arguments=ARGUMENTS),
        change(
            "arguments_rejected",
            key=TEXT,
            tool=TEXT,
            attempt=COUNT,
            field=MAYBE,
            reason=TEXT,
            final={"type": "boolean"},
        ),
        change("call_ended", key=TEXT, tool=TEXT, outcome=TEXT, display=MAYBE),
        change("approval_asked", request_id=TEXT, tool=TEXT, arguments=ARGUMENTS, tier=TEXT),
        change("approval_decided", request_id=TEXT, tool=TEXT, decision=TEXT, by=TEXT, reason=TEXT),
    ]
}


@tool(tier=PermissionTier.ELEVATED)
def sweep(place: str) -> ToolResult:
    """Sweep a place.

    Args:
        place: Where.
    """
    return ToolResult(output=f"swept {place}", display=f"one {place}\u202e cleaner")


MODEL = ScriptedModel(
    {
        "main": [
            [script_call("sweep", place="hall"), script_call("sweep", place="cellar\u202e")],
            [script_call("sessions_spawn", kind="worker", task="look", label="eyes\x1b[31m")],
            "started",
            "done",
        ],
        "main/w1": [script_call("read"), script_call("read", path="notes.txt"), "a note\n" * 200],
    }
)
RULES = [
    Rule(tool="sweep", where={"/place": "hall"}, answer="approve"),
    Rule(tool="sweep", answer="deny"),
]


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[SessionTree]:
    """A tree, open in this process, to which nothing was said yet."""
    (tmp_path / "notes.txt").write_text("a note\n")
    made = SessionTree(
        tmp_path,
        model=MODEL,
        tools=[sweep],
        approver=RULES,
        state_dir=tmp_path / "journal",
        purpose="spring cleaning",
        backend="local",
    )
    async with made:
        yield made


async def go_through(tree: SessionTree) -> None:
    """Let the tree do all it does, and end it."""
    await tree.main.send("go")
    await tree.session("main/w1").result()
    await tree.finish("swept")


def changes_in(done: Done) -> list[dict[str, Any]]:
    """Return the changes a program reads; each fits the documented form."""
    assert (done.code, done.err) == (0, "")
    found = [json.loads(line) for line in done.lines]
    for each in found:
        jsonschema.validate(each, CHANGE)
    return found


@pytest.mark.covers("A22")
@pytest.mark.slow
async def test_running_tree_is_told_change_by_change(program: Program, tree: SessionTree) -> None:
    """Who follows from the start reads alongside the writer to the end; who comes later reads the same."""
    follow = ("tree", "--follow", "--json", "--state-dir", tree.state_dir)
    following = asyncio.create_task(asyncio.to_thread(program.call, *follow))
    await go_through(tree)
    changes = changes_in(await following)
    again = changes_in(await asyncio.to_thread(program.call, *follow))
    assert again == changes
    told = Counter((each["change"], each["session"]) for each in changes)
    assert told == {
        ("session_started", "main"): 1,
        ("call_started", "main"): 3,
        ("call_ended", "main"): 3,
        ("approval_asked", "main"): 2,
        ("approval_decided", "main"): 2,
        ("session_started", "main/w1"): 1,
        ("call_started", "main/w1"): 2,
        ("arguments_rejected", "main/w1"): 1,
        ("call_ended", "main/w1"): 2,
        ("session_ended", "main/w1"): 1,
        ("session_ended", "main"): 1,
    }
    assert [each["seq"] for each in changes] == sorted(each["seq"] for each in changes)
    started = {(each["session"], each["key"]) for each in changes if each["change"] == "call_started"}
    assert started == {(each["session"], each["key"]) for each in changes if each["change"] == "call_ended"}
    decided = [each for each in changes if each["change"] == "approval_decided"]
    assert [(each["decision"], each["by"]) for each in decided] == [("approved", "rule"), ("denied", "rule")]
    asked = [each for each in changes if each["change"] == "approval_asked"]
    assert asked[1]["arguments"] == {"place": "cellar\u202e"}
    assert [each["request_id"] for each in asked] == [each["request_id"] for each in decided]
    shown = [
        each["display"] for each in changes if each["change"] == "call_ended" and each["tool"] == "sweep"
    ]
    assert sorted(shown, key=str) == [None, "one hall\u202e cleaner"]  # the other was denied
    assert changes[-1]["session"] == "main"
    assert (changes[-1]["status"], changes[-1]["summary"]) == ("completed", "swept")


async def test_lines_are_said_where_no_terminal_is(program: Program, tree: SessionTree) -> None:
    """Piped, sessions and approvals become lines; labels and arguments show what is invisible in them."""
    await go_through(tree)
    done = await asyncio.to_thread(program.call, "tree", "--follow", "--state-dir", tree.state_dir)
    assert (done.code, done.err) == (0, "")
    assert sorted(done.lines) == sorted(
        [
            f"tree {tree.tree_id}: spring cleaning",
            "started main: main",
            'asked for approval: main wants sweep {"place":"hall"}',
            'asked for approval: main wants sweep {"place":"cellar\\u{202e}"}',
            "approved by rule: sweep for main, a rule of session 'main' says approve",
            "denied by rule: sweep for main, a rule of session 'main' says deny",
            "main, sweep: one hall\\u{202e} cleaner",
            "main, sessions_spawn: started main/w1 (eyes\\u{1b}[31m)",
            "main/w1, read: notes.txt: lines 1-1",
            "started main/w1: worker eyes\\u{1b}[31m",
            "attempt 1 of main/w1 to call read: path required at /path",
            "ended main/w1: completed",
            "ended main: completed",
        ]
    )


def at_terminal(program: Program, *arguments: str | Path, deaf: bool = False) -> Terminal:
    """Start a command at a terminal that may be drawn on."""
    environment = {
        name: value for name, value in program.environment.items() if name not in {"NO_COLOR", "CI"}
    }
    return Terminal(arguments, {**environment, "TERM": "xterm"}, deaf=deaf)


def seen(terminal: Terminal) -> list[str]:
    """Return what a terminal shows, styles aside."""
    return Glass(re.sub(r"\x1b\[[\d;]*m", "", terminal.said)).seen


@pytest.mark.slow
async def test_finished_tree_is_drawn_once_and_the_command_ends(program: Program, tree: SessionTree) -> None:
    """At a terminal a finished tree is shown as it ended."""
    await go_through(tree)
    with at_terminal(program, "tree", "--follow", "--state-dir", tree.state_dir) as terminal:
        assert terminal.end() == 0
        assert Glass(terminal.said).is_cursor_shown
        first, header, main, rest, totals = seen(terminal)
    assert first == f"tree {tree.tree_id}: spring cleaning"
    assert header.split()[:2] == ["session", "kind"]
    assert main.split()[:3] == ["main", "main", "completed"]
    assert rest == "… 1 finished"
    assert totals.startswith("0 live, 2 ended · ")


@pytest.mark.slow
@pytest.mark.parametrize("deaf", [False, True], ids=["a terminal", "a background shell"])
async def test_ctrl_c_ends_following_and_restores_the_terminal(
    program: Program, tree: SessionTree, deaf: bool
) -> None:
    """Ctrl-C ends with 130, the cursor comes back, and the tree goes on; however the command was started."""
    with at_terminal(program, "tree", "--follow", "--state-dir", tree.state_dir, deaf=deaf) as terminal:
        await asyncio.to_thread(terminal.wait_for, "1 live, 0 ended")
        terminal.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(terminal.end) == 130
        glass = Glass(terminal.said)
    assert glass.is_cursor_shown
    assert glass.seen[-1] == "sessiontree: interrupted"
    await go_through(tree)


@pytest.mark.slow
async def test_damage_is_a_typed_error_after_all_that_is_good(program: Program, tree: SessionTree) -> None:
    """What is good is reported first; then one line names the error and how far it could be read."""
    await go_through(tree)
    place = tree.state_dir
    whole = changes_in(
        await asyncio.to_thread(program.call, "tree", "--follow", "--json", "--state-dir", place)
    )
    await tree.close()
    with sqlite3.connect(place / "journal.db") as database:
        database.execute("UPDATE segments SET body = zeroblob(9) WHERE n > (SELECT max(n) / 2 FROM segments)")
    database.close()
    for more in (("--json",), ()):
        done = await asyncio.to_thread(program.call, "tree", "--follow", *more, "--state-dir", place)
        assert done.code == 2
        assert done.err.startswith("sessiontree: JournalCorrupt: ")
        assert f"{tree.tree_id}': readable up to fact " in done.err
        assert len(done.err.splitlines()) == 1
    told = await asyncio.to_thread(program.call, "tree", "--follow", "--json", "--state-dir", place)
    found = [json.loads(line) for line in told.lines]
    assert 0 < len(found) < len(whole)
    assert found == whole[: len(found)]


def test_what_cannot_be_followed_is_one_typed_line(program: Program, tmp_path: Path) -> None:
    """No journal, no tree, no such tree, and a list that is followed are distinguished."""
    done = program.call("tree", tmp_path, "--follow")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("sessiontree: nothing ran here yet: no journal is here")
    Journal.open(tmp_path / "journal").release()
    done = program.call("tree", "--follow", "--state-dir", tmp_path / "journal")
    assert done.err.startswith("sessiontree: nothing ran here yet: its journal holds no tree")
    done = program.call(
        "tree", "--follow", "--tree", "t0000000000000000", "--state-dir", tmp_path / "journal"
    )
    assert done.code == 2
    assert done.err.startswith("sessiontree: TreeNotFound: ")
    assert program.call("tree", "--follow", "--list").code == 2


async def test_tree_that_is_erased_or_cut_short_is_a_typed_error(tmp_path: Path) -> None:
    """Whoever follows learns that the tree has ended."""
    fact = Packed("cause", 1, '{"kind":"nothing"}')
    writer = Journal.open(tmp_path)
    writer.start(asyncio.get_running_loop())
    for name in ("t1", "t2"):
        await writer.create_tree(name, {})
        await writer.append(name, [("", [fact])])[1]
    with Journal.open(tmp_path, read_only=True) as reader:
        erased, cut = read_facts(reader, "t1"), read_facts(reader, "t2")
        assert (await anext(erased)).seq == 1
        assert (await anext(cut)).seq == 1
        writer.erase("t1")
        with pytest.raises(TreeNotFound):
            await anext(erased)
        await writer.close()
        with sqlite3.connect(tmp_path / "journal.db") as database:
            database.execute("UPDATE heads SET seq = 0")
        database.close()
        with pytest.raises(JournalCorrupt, match="its facts after 0 are gone"):
            await anext(cut)


async def test_new_facts_come_soon_and_once(tmp_path: Path) -> None:
    """Facts appended while somebody waits for them come in order, none twice, whoever writes."""
    writer = Journal.open(tmp_path)
    writer.start(asyncio.get_running_loop())
    await writer.create_tree("t1", {})
    seen: list[int] = []

    async def read(journal: Journal) -> None:
        async for record in read_facts(journal, "t1"):
            seen.append(record.seq)
            if record.seq == 1_200:
                return

    with Journal.open(tmp_path, read_only=True) as reader:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(read(reader))
            for size in (1, 600, 598, 1):
                facts = [Packed("cause", 1, '{"kind":"nothing"}')] * size
                await writer.append("t1", [("", facts)])[1]
    await writer.close()
    assert seen == list(range(1, 1_201))
