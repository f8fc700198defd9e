"""The transcript of a stored tree: what its sessions were sent, replied, called and got back, in order.

It is read from the tree's facts. Facts that only the runtime needs are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sessiontree.contracts.recorded.approvals import decision_words
from sessiontree.contracts.recorded.codec import wire_parts
from sessiontree.contracts.reports.events import exit_of
from sessiontree.contracts.values.messages import ToolResultMessage, message_from_wire
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.journal.record import JournalRecord, kind_in
from sessiontree.journal.replay import UPCASTERS
from sessiontree.view.program_panel import read_fan_out

MAX_TEXT_CHARS: Final = 4_000
"""Most characters of one text that lines show; JSON holds all."""


@dataclass(frozen=True, slots=True)
class TranscriptStep:
    """One thing that happened in a session."""

    seq: int
    """Number of its fact in the tree."""
    at_ms: int
    """Milliseconds since 1970."""
    session: str
    """The session's path, such as ``main/b1``."""
    what: str
    """In words, such as ``reply`` or ``result of write``."""
    text: str
    """As a model, tool or person wrote it: it may hold anything."""
    is_failure: bool = False
    """Whether something went wrong: an error, a refusal, a command's exit code other than 0."""

    def lines(self) -> Iterator[str]:
        """Yield it as lines for people; they are not yet safe to show."""
        yield f"[{self.seq}] {self.session}: {self.what}"
        if self.text:
            yield from indented(self.text, 4)


@dataclass(frozen=True, slots=True)
class _Said:
    what: str
    text: str
    session: str = ""
    """Empty = the session of the record."""
    is_failure: bool = False
    key: str = ""
    """Key of its call; empty = that of the fact."""


@dataclass(frozen=True, slots=True)
class StepOfFact:
    """A step, and what it was read from."""

    step: TranscriptStep
    kind: str
    """Kind of its fact."""
    key: str
    """Key of the call that it is about; empty = of none."""
    child: str
    """The session that it is the beginning of; empty = of none."""


Fact: TypeAlias = Mapping[str, Any]


def transcript_of(records: Iterable[JournalRecord], session: str | None = None) -> Iterator[TranscriptStep]:
    """Yield the steps of a tree's facts, in their order.

    Args:
        records: All facts of the tree, from the first.
        session: Only the steps of the session with this path; None = of all.

    Raises:
        JournalTooNew, JournalCorrupt: no release that is known here wrote a fact.
    """
    for given in steps_of_facts(records):
        if session is None or session == given.step.session:
            yield given.step


def steps_of_facts(records: Iterable[JournalRecord]) -> Iterator[StepOfFact]:
    """Yield the steps of a tree's facts, in their order, each with what it was read from.

    Raises:
        JournalTooNew, JournalCorrupt: no release that is known here wrote a fact.
    """
    asked_by: dict[str, str] = {}
    for record in records:
        if kind_in(record.text) not in _READ:
            continue
        for fact in wire_parts(UPCASTERS.upcast(record.to_json())):
            kind = str(fact["kind"])
            say = _STEPS.get(kind)
            if kind == "approval_requested":
                asked_by[fact["question"]["request_id"]] = str(fact["question"]["session"])
            for said in () if say is None else say(fact):
                whose = record.session or said.session or asked_by.get(str(fact.get("request_id")), MAIN)
                step = TranscriptStep(record.seq, record.at_ms, whose, said.what, said.text, said.is_failure)
                child = fact["spec"]["session_id"] if kind == "session_spawned" else ""
                yield StepOfFact(step, kind, said.key or str(fact.get("key") or ""), child)


def indented(text: str, spaces: int) -> Iterator[str]:
    """Yield the lines of a text, indented; at most ``MAX_TEXT_CHARS`` characters of it."""
    for line in shortened(text, MAX_TEXT_CHARS).split("\n"):
        yield f"{' ' * spaces}{line}"


def shortened(text: str, limit: int) -> str:
    """Return a text cut to a number of characters; it says how many are left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def _spawned(fact: Fact) -> Iterator[_Said]:
    spec = fact["spec"]
    yield _Said(f"spawned {spec['session_id']}", str(spec.get("task", "")), str(spec.get("parent") or MAIN))


def _spawn_denied(fact: Fact) -> Iterator[_Said]:
    yield _Said(f"spawn of a {fact['kind_']} refused", str(fact["reason"]), str(fact["parent"]), True)


def _received(fact: Fact) -> Iterator[_Said]:
    message = fact["message"]
    yield _Said(f"message from {message.get('origin', 'user')}", _text(message))


def _replied(fact: Fact) -> Iterator[_Said]:
    calls = 0
    for block in fact["message"]["content"]:
        if block["type"] == "toolCall":
            key, calls = f"{fact.get('turn', 0)}.{calls}", calls + 1
            yield _Said(f"call {block['name']}", _json(block["arguments"]), key=key)
        elif block["type"] == "text" and block["text"]:
            yield _Said("reply", block["text"])


def _reply_cut(fact: Fact) -> Iterator[_Said]:
    yield _Said("reply, cut because its tokens were used up", str(fact["text"]), is_failure=True)


def _reply_empty(fact: Fact) -> Iterator[_Said]:
    yield _Said("reply", "(empty; the model is asked once more)", is_failure=True)


def _opened(fact: Fact) -> Iterator[_Said]:
    yield _Said(f"call {fact['tool']} by the program", _json(fact["arguments"]))


def _program_started(fact: Fact) -> Iterator[_Said]:
    call, source = fact["call"], fact.get("source")
    yield _Said(f"program {call['key']} begins", "" if source is None else source["code"], key=call["key"])


def _program_advanced(fact: Fact) -> Iterator[_Said]:
    for note in fact.get("notes", ()):
        text = str(note["text"])
        if note["sort"] == "phase":
            yield _Said(f"phase {text}", "")
        elif note["sort"] == "fan_out":
            yield from _fan_out(text)
        else:
            yield _Said("program output", text)
    for asked in fact["calls"]:
        line = f" at line {asked['line']}" if asked.get("line") else ""
        yield _Said(f"program calls {asked['tool']}{line}", _json(asked["arguments"]))


def _fan_out(text: str) -> Iterator[_Said]:
    """Say what a note of the functions around a program means; any other note means nothing."""
    noted = read_fan_out(text)
    if noted is not None:
        number, word, count = noted
        more = f"ended, {count:,} not started" if word == "ended" else f"begins, {word} of {count:,}"
        yield _Said(f"fan-out {number} {more}", "")


def _rejected(fact: Fact) -> Iterator[_Said]:
    where = f" at {fact['field']}" if fact.get("field") else ""
    what = f"arguments of {fact['tool']} rejected, attempt {fact['attempt']}"
    yield _Said(what, f"{fact['reason']}{where}", is_failure=True)


def _resolved(fact: Fact) -> Iterator[_Said]:
    message = message_from_wire(fact["message"])
    if not isinstance(message, ToolResultMessage):
        return
    how = "error" if message.is_error else exit_of(message)
    what = f"result of {message.tool_name}{'' if how is None else f' ({how})'}"
    yield _Said(what, _text(fact["message"]), is_failure=how is not None)


def _parked(fact: Fact) -> Iterator[_Said]:
    yield _Said(f"call {fact['message'].get('toolName', fact['key'])} waits", _text(fact["message"]))


def _requested(fact: Fact) -> Iterator[_Said]:
    question = fact["question"]
    call = question["call"]
    what = f"approval asked for {call['tool']}, request {question['request_id']}"
    yield _Said(what, _json(call["arguments"]), str(question["session"]))


def _decided(fact: Fact) -> Iterator[_Said]:
    refused = fact["decision"] != "approved"
    yield _Said(
        f"approval {decision_words(fact['decision'], fact['by'])}", str(fact["reason"]), is_failure=refused
    )


def _failed(fact: Fact) -> Iterator[_Said]:
    yield _Said("no reply", str(fact["reason"]), is_failure=True)


def _interrupted(fact: Fact) -> Iterator[_Said]:
    yield _Said("interrupted", str(fact["reason"]), is_failure=True)


def _compacted(fact: Fact) -> Iterator[_Said]:
    yield _Said("summary of the older part", _text(fact["summary"]))


def _spent(fact: Fact) -> Iterator[_Said]:
    text = f"{fact['limit']}: {fact['used']:g} of {fact['allowed']:g}"
    yield _Said("budget spent", text, str(fact["account"]), True)


def _given_up(fact: Fact) -> Iterator[_Said]:
    yield _Said(f"gave up {fact['tool']}", str(fact["reason"]), is_failure=True)


def _hook_failed(fact: Fact) -> Iterator[_Said]:
    what = f"hook {fact['hook']} failed at {fact['point']}"
    yield _Said(what, str(fact["reason"]), str(fact.get("session", "")), True)


def _told(fact: Fact) -> Iterator[_Said]:
    yield _Said("message to the channel", str(fact["text"]), str(fact["session"]))


def _ended(fact: Fact) -> Iterator[_Said]:
    failed = fact["status"] != "completed"
    how = fact["result"].get("cause") or fact["status"]
    what, text = f"ended: {how}", str(fact["result"].get("summary", ""))
    yield _Said(what, text, str(fact["session"]), failed)


_STEPS: Final[Mapping[str, Callable[[Fact], Iterator[_Said]]]] = {
    "session_spawned": _spawned,
    "spawn_denied": _spawn_denied,
    "message_received": _received,
    "turn_replied": _replied,
    "reply_cut": _reply_cut,
    "reply_empty": _reply_empty,
    "turn_failed": _failed,
    "call_opened": _opened,
    "program_started": _program_started,
    "program_advanced": _program_advanced,
    "arguments_rejected": _rejected,
    "call_parked": _parked,
    "call_resolved": _resolved,
    "approval_requested": _requested,
    "approval_decided": _decided,
    "context_compacted": _compacted,
    "budget_spent": _spent,
    "tool_given_up": _given_up,
    "hook_failed": _hook_failed,
    "outside_hook_failed": _hook_failed,
    "interrupted": _interrupted,
    "channel_said": _told,
    "session_ended": _ended,
}
"""By kind of fact, what is said of it."""
_READ: Final = frozenset({*_STEPS, "opened"})
"""Kinds of facts of which something is said, or that may hold such facts."""


def _text(message: Mapping[str, Any]) -> str:
    return "\n".join(
        str(block["text"]) if block["type"] == "text" else f"({block['type']})"
        for block in message["content"]
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
