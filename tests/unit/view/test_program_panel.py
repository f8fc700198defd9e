"""A program's panel: its counts are those of its calls, in whatever order they end, and its text is safe."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.facts.session_facts import (
    CallResolved,
    ChildAwaited,
    ProgramAdvanced,
    ProgramStarted,
)
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.codec import pack
from sessiontree.contracts.recorded.programs import ProgramCall, ProgramNote, ProgramSource
from sessiontree.contracts.values.messages import TextContent, ToolResultMessage
from sessiontree.journal.record import JournalRecord
from sessiontree.view.program_panel import FEW, ProgramPanel, make_panel
from sessiontree.view.rows import build_program_json
from sessiontree.view.transcript import list_items

ENDS = {
    "completed": "done",
    "failed": "failed",
    "cancelled": "failed",
    "lost": "lost",
    "provider": "lost",
    "budget": "lost",
}
CODE = "phase('a')\nawait map('worker', tasks)\nawait read(path='a')\n"


def begun(tasks: int) -> ProgramPanel:
    """Return the panel of a program that has begun a fan-out of so many tasks."""
    panel = make_panel(
        ProgramStarted(CheckedCall("1.0", "program", {"code": CODE}, "", 0, repeatable=True), 1)
    )
    notes = (ProgramNote("phase", "a"), ProgramNote("fan_out", f"1 map {tasks}"))
    panel.take(ProgramAdvanced("1.0", (), notes), 1)
    return panel


def result(number: int, text: str, *, is_error: bool = False) -> CallResolved:
    """Return the result of a program's call."""
    message = ToolResultMessage(f"c/{number}", "x", (TextContent(text),), None, is_error, 1)
    return CallResolved(f"1.0/{number}", "error" if is_error else "ok", message)


@given(st.lists(st.sampled_from(sorted(ENDS)), max_size=30), st.integers(0, 9), st.randoms())
def test_counts_are_those_of_the_children(ends: list[str], left: int, random: object) -> None:
    """Together they are all tasks at any time; a fact that comes again changes nothing."""
    panel = begun(len(ends) + left)
    fan_out = panel.fan_outs[1]
    call = ProgramCall("sessions_spawn", {"kind": "worker"}, 0, awaits=True, fan_out=1)
    panel.take(ProgramAdvanced("1.0", (call,) * len(ends)), 2)
    order = sorted(range(len(ends)), key=lambda _: random.random())  # type: ignore[attr-defined]
    for number in order:
        assert fan_out.running + fan_out.ended.total() + fan_out.left == fan_out.tasks
        assert panel.lines == Counter({2: len(panel.open)})
        accepted = ToolResultMessage("c", "x", (TextContent('{"session_id":"main/w1"}'),), None, False, 1)
        panel.take(ChildAwaited(f"1.0/{number}", accepted), 3)
        end = ends[number]
        report = {"session": "main/w1", "status": "completed" if end == "completed" else "failed"}
        report |= {"cause": end} if ENDS[end] == "lost" else {}
        for _ in range(2):
            panel.take(result(number, json.dumps(report)), 4)
    assert fan_out.ended == Counter(ENDS[end] for end in ends)
    assert panel.counts == fan_out.ended
    assert not +panel.lines
    assert not +panel.now
    panel.take(ProgramAdvanced("1.0", (), (ProgramNote("fan_out", f"1 ended {left}"),)), 5)
    assert (fan_out.left, fan_out.running) == (left, 0)


def test_thousand_calls_make_a_short_answer() -> None:
    """A viewer gets those that matter, and counts; the rest page by page."""
    panel = begun(0)
    calls = tuple(ProgramCall("read", {"path": f"{number}.txt"}, 3) for number in range(1_000))
    panel.take(ProgramAdvanced("1.0", calls), 2)
    for number in range(990):
        panel.take(result(number, "gone" if number % 3 else "fine", is_error=number % 3 > 0), 3)
    told = build_program_json(panel)
    assert (told["total"], told["under_way"], told["counts"]["failed"]) == (1_000, 10, 660)
    assert [len(told[name]) for name in ("open", "last", "failed")] == [FEW] * 3
    assert told["lines"] == [(3, 10)]
    assert len(json.dumps(told)) < 8_000
    assert [step["number"] for step in build_program_json(panel, 990, 200)["steps"]] == list(
        range(990, 1_000)
    )


def test_what_a_program_says_can_not_deceive() -> None:
    """Control characters and marks of direction are made visible; a false count is ignored."""
    panel = begun(2)
    hostile = "\x1b[2Jdone\u202e"
    notes = (ProgramNote("phase", hostile), ProgramNote("log", hostile), ProgramNote("fan_out", "1 ended -5"))
    panel.take(ProgramAdvanced("1.0", (ProgramCall(hostile, {hostile: hostile}),), notes), 2)
    panel.take(result(0, hostile, is_error=True), 3)
    shown = json.dumps(build_program_json(panel, 0, 9), ensure_ascii=False) + panel.words()
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert panel.fan_outs[1].left == 2


def test_saved_program_is_shown_with_the_text_that_runs() -> None:
    """Its call has arguments and no code; the item of the page has both."""
    call = CheckedCall("1.0", "count", {"path": "a.txt"}, "", 0, repeatable=True)
    fact = ProgramStarted(call, 1, ProgramSource("count", CODE, "0" * 64))
    assert make_panel(fact).code == CODE
    (item,) = list_items([JournalRecord(1, "main", "", 1, pack(fact))])
    assert item["text"] == CODE
    assert item["call"]["arguments"] == [("path", "a.txt", False)]
