"""A transcript with each program as one step: no step of a program is left over, and no other is missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sessiontree.api.stored.folded_programs import MAX_LINE_CHARS, fold_transcript
from sessiontree.api.stored.transcript import build_transcript
from sessiontree.contracts.facts.session_facts import (
    CallResolved,
    ChildAwaited,
    MessageReceived,
    ProgramAdvanced,
    ProgramStarted,
    TurnReplied,
)
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.codec import pack
from sessiontree.contracts.recorded.programs import ProgramCall, ProgramNote, ProgramSource
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from sessiontree.journal.record import JournalRecord

CODE = "phase('a')\n" + "\n".join(f"await read(path='{number}')  # {'x' * 200}" for number in range(99))
Placed = tuple[str, Any]
"""A fact with the session that it is of."""


def result(key: str, text: str) -> CallResolved:
    """Return the result of a call."""
    return CallResolved(key, "ok", ToolResultMessage(key, "x", (TextContent(text),), None, False, 1))


def message(text: str) -> MessageReceived:
    """Return a message to a session."""
    return MessageReceived(text, UserMessage((TextContent(text),), 1), False, True)


def replied(*calls: ToolCall) -> TurnReplied:
    """Return the first reply of a session."""
    return TurnReplied(1, AssistantMessage(calls or (TextContent("fine"),)))


def program_facts(key: str, calls: int, children: int, ends: Sequence[str]) -> list[Placed]:
    """Return what a program of Main leaves in the journal, and what its children leave."""
    begun = ProgramStarted(CheckedCall(key, "program", {"code": CODE}, "", 0, repeatable=True), 1)
    notes = (ProgramNote("phase", "a"), ProgramNote("fan_out", f"1 map {children}"), ProgramNote("log", "hm"))
    asked = [ProgramCall("read", {"path": "p"}, 2)] * calls
    asked += [ProgramCall("sessions_spawn", {"kind": "worker"}, 0, awaits=True, fan_out=1)] * children
    facts: list[Placed] = [("main", begun), ("main", ProgramAdvanced(key, tuple(asked), notes))]
    facts += [("main", result(f"{key}/{number}", "text")) for number in range(calls)]
    for number in range(children):
        path = f"main/w{number}"
        if number % 2:  # another one reports before its start is noted
            facts.append(("main", ChildAwaited(f"{key}/{calls + number}", _accepted(path))))
        facts += [(path, message("a task")), (path, replied()), (f"{path}/b1", message("a task below"))]
        report = {"session": path, "status": ends[number % len(ends)]}
        facts.append(("main", result(f"{key}/{calls + number}", json.dumps(report))))
    return facts


def _accepted(path: str) -> ToolResultMessage:
    return ToolResultMessage("c", "x", (TextContent(json.dumps({"session_id": path})),), None, False, 1)


def records_of(facts: Sequence[Placed]) -> list[JournalRecord]:
    """Return the facts as records of a journal."""
    return [JournalRecord(seq, path, "", 1, pack(fact)) for seq, (path, fact) in enumerate(facts, 1)]


BEFORE: list[Placed] = [
    ("main", message("go")),
    ("main", replied(ToolCall("a", "program", {"code": CODE}), ToolCall("b", "read", {"path": "q"}))),
]
OTHERS: list[Placed] = [
    ("main", result("1.1", "text")),
    ("main/w99", message("another child")),
    ("main", message("still there?")),
]


@given(
    st.integers(0, 30),
    st.integers(0, 30),
    st.lists(st.sampled_from(["completed", "failed"]), min_size=1, max_size=3),
    st.integers(0, 9),
)
def test_program_is_one_step_among_those_of_all_others(
    calls: int, children: int, ends: list[str], at: int
) -> None:
    """However much it did: the other steps are those of a tree that has no program, in the same order."""
    program = program_facts("1.0", calls, children, ends)
    facts = [*BEFORE, *program[:at], *OTHERS, *program[at:], ("main", result("1.0", "the value"))]
    steps = fold_transcript(records_of(facts))
    folded = [step for step in steps if step.what.startswith("program 1.0")]
    assert [step.what for step in folded] == ["program 1.0 ended (ok)"]
    lines = list(folded[0].lines())
    assert max(map(len, lines)) <= MAX_LINE_CHARS + 4
    assert len(lines) < 60
    assert any(f"map of {children}: 0 running, " in line for line in lines)
    bare = build_transcript(records_of([*BEFORE, *OTHERS, ("main", result("1.0", "the value"))]))
    others = [(step.session, step.what, step.text) for step in steps if step not in folded]
    assert others == [(each.session, each.what, each.text) for each in bare if each.what != "call program"]


def test_child_that_is_named_has_all_its_steps() -> None:
    """The steps of a session that somebody asks for are never left out."""
    records = records_of([*BEFORE, *program_facts("1.0", 1, 3, ["completed"])])
    assert fold_transcript(records, "main/w1") == list(build_transcript(records, "main/w1"))
    assert len(fold_transcript(records, "main")) == 3


def test_report_can_not_hide_a_session_that_is_no_child() -> None:
    """A child's report may have been replaced; only sessions below the program's are its children."""
    program = program_facts("1.0", 0, 1, ["completed"])
    for path in ("main", "", "elsewhere"):
        forged = ("main", result("1.0/0", json.dumps({"session": path, "status": "completed"})))
        steps = fold_transcript(records_of([*BEFORE, *program[:-1], forged, ("elsewhere", message("x"))]))
        assert {step.session for step in steps} == {"main", "main/w0", "main/w0/b1", "elsewhere"}


def test_program_in_a_program_is_shown_while_it_runs() -> None:
    """A saved program that another one calls has its own text; when it has ended, it is one of the calls."""
    source = ProgramSource("count", "await read(path='q')\n", "0" * 64)
    call = CheckedCall("1.0/0", "count", {}, "", 0, repeatable=True)
    facts = [
        *BEFORE,
        *program_facts("1.0", 0, 0, ["completed"]),
        ("main", ProgramAdvanced("1.0", (ProgramCall("count", {}, 2),))),
        ("main", ProgramStarted(call, 1, source)),
        ("main", ProgramAdvanced("1.0/0", (ProgramCall("read", {"path": "q"}, 1),))),
    ]
    inner = fold_transcript(records_of(facts))[-1]
    assert inner.what == "count 1.0/0 runs"
    assert ">    1  [1 waits] await read(path='q')" in inner.text
    ended = fold_transcript(records_of([*facts, ("main", result("1.0/0", "2"))]))
    assert [step.what for step in ended if "1.0" in step.what] == ["program 1.0 runs"]
