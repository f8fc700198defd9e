"""The trace of a tree: complete, without repeats, and the same however often the tree was closed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.facts import session_facts, tree_facts
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.codec import from_wire, pack
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from sessiontree.hooks.redact import MARK, Redact
from sessiontree.journal.export import load_export
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.telemetry.open_spans import MAX_EVENTS, OpenSpans
from sessiontree.runtime.telemetry.spans import SpanRecord, build_model_attributes
from sessiontree.runtime.telemetry.tree_spans import TreeSpans
from tests.unit.golden.scenario_fixtures import GOLDEN
from tests.unit.runtime.span_oracle import check_complete, check_lives, check_trace, lives_of, spans_of
from tests.unit.session.session_fixtures import spec as session_spec
from tests.unit.tree.tree_fixtures import config

SEARCH = settings(max_examples=500, derandomize=True, database=None, phases=[Phase.generate])
SECRET = "sk-ant-" + "a1b2c3d4" * 5
MAIN, BRANCH, WORKER = "main", "main/b1", "main/w1"


def spec(session: str) -> SessionSpec:
    """Return a session of the tree."""
    kind = {MAIN: SessionKind.MAIN, BRANCH: SessionKind.BRANCH, WORKER: SessionKind.WORKER}[session]
    parent, depth = (None, 0) if session == MAIN else (MAIN, 1)
    return replace(session_spec(kind), session_id=session, parent=parent, depth=depth)


def journal() -> tuple[TreeConfig, list[JournalRecord]]:
    """Return a recorded tree."""
    with GOLDEN.open() as lines:
        export = load_export(lines)
    assert export.manifest is not None
    made: TreeConfig = from_wire(export.manifest.row0)
    return made, list(export.records)


def call(key: str, **arguments: Any) -> CheckedCall:
    """Return a checked call."""
    return CheckedCall(key, "write", arguments, "digest", 1, repeatable=False)


def reply(*calls: ToolCall, text: str = "done") -> AssistantMessage:
    """Return a reply that used seven tokens."""
    content: tuple[TextContent | ToolCall, ...] = (TextContent(text), *calls)
    return AssistantMessage(content, "toolUse" if calls else "stop", Usage(5, 2, 0.25, 1, len(calls)))


def result_of(key: str, outcome: Any = "ok") -> session_facts.CallResolved:
    """Return the result of a call."""
    message = ToolResultMessage("call", "write", (TextContent(f"wrote {SECRET}"),))
    return session_facts.CallResolved(key, outcome, message)


def story(*facts: tuple[str, object]) -> list[JournalRecord]:
    """Return facts as journaled, a millisecond apart."""
    return [
        JournalRecord(number, session, "cause", 1000 + number, pack(fact))
        for number, (session, fact) in enumerate(facts, 1)
    ]


def told() -> list[JournalRecord]:
    """Return a tree in which Main's only call waits for an approval, and fails."""
    asks = ToolCall("call_1", "write", {"text": SECRET})
    message = UserMessage((TextContent(f"my key is {SECRET}"),), 0)
    return story(
        ("", tree_facts.TreeCreated(config())),
        ("", tree_facts.SessionSpawned(spec(MAIN), MAIN, 1)),
        (MAIN, session_facts.Opened(f"be good {SECRET}", ("write",), "anthropic:claude")),
        (MAIN, session_facts.MessageReceived("m1", message, steer=False, wakes=True)),
        (MAIN, session_facts.TurnStarted(1, 1, fresh_run=True)),
        (MAIN, session_facts.TurnFailed(1, f"refused {SECRET}", "", 2000)),
        (MAIN, session_facts.TurnRetried(1)),
        (MAIN, session_facts.TurnReplied(1, reply(asks, text=f"I write {SECRET}"))),
        (MAIN, session_facts.ApprovalWanted("r1", call("1.0", text=SECRET), 0)),
        ("", tree_facts.ApprovalStepRecorded("r1", MAIN, "approve", "Ada Lovelace", SECRET)),
        ("", tree_facts.ApprovalDecided("r1", "approved", "Ada Lovelace", SECRET)),
        (MAIN, session_facts.CallIntended(call("1.0", text=SECRET))),
        (MAIN, result_of("1.0", "timeout")),
        (MAIN, session_facts.RunFinished("done", ("m1",), None, None, has_result=False)),
    )


def all_made(records: list[JournalRecord], *, content: bool = False) -> list[SpanRecord]:
    """Return the spans of facts."""
    spans = TreeSpans(config(), Redact().value if content else None)
    found = [span for record in records for span in spans.add(record)]
    return [*found, *spans.cut(records[-1].seq)]


def made(records: list[JournalRecord], *, content: bool = False) -> dict[str, SpanRecord]:
    """Return the last span of each name."""
    return {span.name: span for span in all_made(records, content=content)}


@given(data=st.data())
def test_spans_of_a_recorded_tree_are_whole(data: st.DataObject) -> None:
    """However often a tree was closed and resumed, no span is missing, twice, or without its parent."""
    found, records = journal()
    cuts = data.draw(st.sets(st.integers(1, len(records)), max_size=4))
    lives = lives_of(found, records, cuts)
    check_lives(lives)
    check_complete([span for life in lives for span in life], records)


def test_spans_are_the_same_for_whoever_reads() -> None:
    """Two readers agree on every span without asking each other; another tree has another trace."""
    found, records = journal()
    assert spans_of(found, records, {40}) == spans_of(found, records, {40})
    other = TreeSpans(replace(found, nonce="0" * 32))
    assert other.trace_id != TreeSpans(found).trace_id
    assert len(other.trace_id) == 32


def facts_of(session: str) -> list[list[tuple[str, str]]]:
    """Return facts of a session as journaled, by kind, whatever could follow from what was before."""
    turns, keys = (1, 2, 3), ("1.0", "2.0", "2.1", "call.x")
    asks = ToolCall("c", "write", {})
    summary = UserMessage((TextContent("they talked"),), 0)
    own: list[list[object]] = [
        [session_facts.Opened("p", (), model) for model in ("m", "a:b")],
        [session_facts.TurnStarted(turn, 0, fresh) for turn in turns for fresh in (False, True)],
        [session_facts.TurnRetried(turn) for turn in turns],
        [
            session_facts.TurnReplied(turn, made)
            for turn in turns
            for made in (reply(), reply(asks), reply(asks, asks))
        ],
        [session_facts.TurnFailed(turn, "no", "", again) for turn in turns for again in (None, 9)],
        [session_facts.TurnCut(turn, "cut") for turn in turns],
        [session_facts.CompactionBegun(turn, 1, (), writer) for turn in turns for writer in ("", "a:c")],
        [session_facts.ContextCompacted(turn, 1, (), summary, Usage(1, 1, 0, 1, 0)) for turn in turns],
        [session_facts.CompactionFailed(turn, "no", None) for turn in turns],
        [session_facts.CallOpened(key, "i", "write", {}) for key in keys],
        [session_facts.CallIntended(call(key)) for key in keys],
        [session_facts.ApprovalWanted(name, call(key), 0) for name in "ab" for key in keys],
        [result_of(key, outcome) for key in keys for outcome in ("ok", "error")],
        [session_facts.RunFinished("", (), None, None, has_result=False)],
        [session_facts.Interrupted("p", "r")],
        [session_facts.Stopping("r", "cancelled")],
    ]
    ended: SessionResult[Any] = SessionResult(SessionStatus.FAILED, "no")
    trees: list[list[object]] = [
        [tree_facts.SessionSpawned(spec(session), session, 1)],
        [tree_facts.SessionEnded(session, SessionStatus.FAILED, ended, 0, forced=True)],
        [tree_facts.ApprovalDecided(name, "denied", "x", "") for name in "ab"],
    ]
    packed = [[(session, pack(fact)) for fact in kind] for kind in own]
    return packed + [[("", pack(fact)) for fact in kind] for kind in trees]


EVERY = [kind for session in (MAIN, BRANCH, WORKER) for kind in facts_of(session)]
BEGIN = [("", pack(tree_facts.TreeCreated(config())))]
BEGIN += [("", pack(tree_facts.SessionSpawned(spec(each), each, 1))) for each in (MAIN, BRANCH, WORKER)]


@st.composite
def journals(draw: st.DrawFn) -> tuple[list[JournalRecord], set[int]]:
    """Return facts of a tree, of which some are repeated, and after which of them it is closed."""
    facts = draw(st.lists(st.one_of([st.sampled_from(kind) for kind in EVERY]), max_size=30))
    facts += facts[: draw(st.integers(0, 10))]
    records = [
        JournalRecord(number, session, "cause", 1000 + number, text)
        for number, (session, text) in enumerate([*BEGIN, *facts], 1)
    ]
    return records, draw(st.sets(st.integers(1, len(records)), max_size=3))


@given(journals())
def test_spans_of_any_facts_are_sound(journal: tuple[list[JournalRecord], set[int]]) -> None:
    """A journal that no release writes breaks nothing: what is exported is a trace."""
    check_lives(lives_of(config(), *journal))


class ParentsOfEarlierLives(OpenSpans):
    """Keeps the ids of parents when the tree is closed."""

    def cut(self, seq: int) -> list[SpanRecord]:
        """End every open span."""
        for span in self._spans.values():
            span.parent = None if span.parent is None else replace(span.parent)
        return super().cut(seq)


class ParentsInTheOrderOfSpans(OpenSpans):
    """Gives spans the new ids of their parents in the order in which they began, by what these stand for."""

    def cut(self, seq: int) -> list[SpanRecord]:
        """End every open span."""
        ended = super().cut(seq)
        is_renewed = set()
        for span in self._spans.values():
            parent = None if span.parent is None else self._spans.get(span.parent.what)
            if parent is not None and parent.what not in is_renewed:
                span.parent = replace(parent, span_id=parent.continues or parent.span_id)
            is_renewed.add(span.what)
        return ended


class IdsWithoutFacts(OpenSpans):
    """Derives the id of a span from what it stands for alone, not from the fact that begins it."""

    def digest(self, what: str, size: int) -> str:
        """Return an id."""
        number, _, rest = what.partition("|")
        return super().digest(rest if number.isdecimal() else what, size)


class PartsWithoutNumbers(OpenSpans):
    """Derives the id of a further part of a span from the span alone, not from the closing."""

    def digest(self, what: str, size: int) -> str:
        """Return an id."""
        number, plus, rest = what.partition("+|")
        return super().digest(f"+|{rest}" if plus and number.isdecimal() else what, size)


BROKEN = (ParentsOfEarlierLives, ParentsInTheOrderOfSpans, IdsWithoutFacts, PartsWithoutNumbers)


@pytest.mark.parametrize("broken", BROKEN)
def test_planted_bug_of_spans_is_found(broken: type[OpenSpans]) -> None:
    """Random journals show each of them soon."""

    class Planted(TreeSpans):
        def __init__(self, config: TreeConfig) -> None:
            super().__init__(config, spans=broken(config))

    def is_wrong(journal: tuple[list[JournalRecord], set[int]]) -> bool:
        try:
            check_lives(lives_of(config(), *journal, Planted))
        except AssertionError:
            return True
        return False

    find(journals(), is_wrong, settings=SEARCH)


def test_call_that_waited_and_failed_is_seen_in_its_span() -> None:
    """Approval, intent and outcome of a call; retries and usage of a question; the model and its provider."""
    spans = made(told())
    waited = spans["execute_tool write"]
    assert [event.name.removeprefix("sessiontree.") for event in waited.events] == [
        "approval.wanted",
        "approval.step",
        "approval.decided",
        "effect.intended",
    ]
    assert (waited.error, waited.attributes["error.type"]) == ("timeout", "timeout")
    assert waited.attributes["gen_ai.operation.name"] == "execute_tool"
    asked = spans["chat claude"]
    assert asked.kind == "client"
    assert asked.attributes["gen_ai.provider.name"] == "anthropic"
    assert asked.attributes["gen_ai.response.finish_reasons"] == ("tool_call",)
    assert asked.attributes["gen_ai.usage.input_tokens"] == 5
    assert asked.attributes["sessiontree.usage.cost_usd"] == 0.25
    assert asked.attributes["sessiontree.attempt"] == 2
    assert spans["session tree"].attributes["gen_ai.usage.output_tokens"] == 2
    turn = spans["turn 1"]
    assert waited.parent_id == asked.parent_id == turn.span_id
    assert [event.name for event in turn.events] == ["sessiontree.retry.waiting"]


def test_compaction_is_a_span_whose_tokens_count() -> None:
    """The question for a summary is one of the session's, and its usage part of the sums."""
    usage = Usage(90, 10, 0.5, 1, 0)
    summary = UserMessage((TextContent(f"they talked about {SECRET}"),), 0)
    more: list[tuple[str, object]] = [
        (MAIN, session_facts.CompactionBegun(2, 3, (), "openai:cheap")),
        (MAIN, session_facts.ContextCompacted(2, 3, (), summary, usage, "openai:cheap")),
        (MAIN, session_facts.TurnStarted(3, 0, False)),
    ]
    records = [replace(record, seq=20 + record.seq, at_ms=3000) for record in story(*more)]
    before = told()
    spans = TreeSpans(config())
    found = [span for record in [*before, *records] for span in spans.add(record)]
    rest = spans.cut(30)
    check_trace([*found, *rest])
    assert "chat claude" in [span.name for span in rest], "the next turn is the session's model's"
    compaction = next(span for span in found if span.name == "compaction 2")
    asked = next(span for span in found if span.parent_id == compaction.span_id)
    assert asked.name == "chat cheap"
    assert asked.attributes["gen_ai.response.model"] == "openai:cheap"
    assert asked.attributes["gen_ai.usage.input_tokens"] == 90
    root = next(span for span in made([*before, *records]).values() if span.parent_id is None)
    assert root.attributes["gen_ai.usage.input_tokens"] == 95
    assert SECRET not in repr(found)


def test_spans_hold_no_content_unless_it_is_asked_for() -> None:
    """No message, argument, result, reason, or name of a person; with content, but without its secrets."""
    plain = repr(all_made(told()))
    for text in (SECRET, "my key", "I write", "wrote", "be good", "refused", "Lovelace"):
        assert text not in plain, text
    spans = made(told(), content=True)
    shown = repr(all_made(told(), content=True))
    assert SECRET not in shown
    assert "Lovelace" not in shown
    assert json.loads(str(spans["execute_tool write"].attributes["gen_ai.tool.call.arguments"])) == {
        "text": MARK
    }
    asked = json.loads(str(spans["chat claude"].attributes["gen_ai.output.messages"]))
    assert asked[0]["parts"][0]["content"] == f"I write {MARK}"
    assert f"wrote {MARK}" in shown
    assert f"be good {MARK}" in shown


def test_names_that_a_model_made_up_are_not_shown() -> None:
    """A call of a tool that the tree does not have is called unknown: its name is the model's text."""
    records = told()[:5]
    asks = ToolCall("c", f"send {SECRET}", {})
    records.append(JournalRecord(6, MAIN, "", 1006, pack(session_facts.TurnReplied(1, reply(asks)))))
    assert "execute_tool unknown" in made(records)
    assert SECRET not in repr(made(records))


def test_events_of_a_span_are_bounded() -> None:
    """What is too much is counted."""
    first = told()[:3]
    denied = tree_facts.SpawnDenied(MAIN, SessionKind.WORKER, "max_children", 1, 1, "no")
    more = [JournalRecord(4 + n, "", "", 2000, pack(denied)) for n in range(MAX_EVENTS + 7)]
    span = made([*first, *more])["invoke_agent default"]
    assert len(span.events) == MAX_EVENTS
    assert span.attributes["sessiontree.events.dropped"] == 7


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("google:gemini-3", "gcp.gemini", "gemini-3"),
        ("openai-responses:gpt", "openai", "gpt"),
        ("local:smollm2", "local", "smollm2"),
        ("scripted", "sessiontree", "scripted"),
    ],
)
def test_models_are_named_as_the_conventions_do(model: str, provider: str, name: str) -> None:
    """Provider and model have attributes of their own."""
    assert build_model_attributes(model) == {"gen_ai.provider.name": provider, "gen_ai.request.model": name}
