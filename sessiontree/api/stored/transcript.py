"""The transcript of a stored tree: what its sessions were sent, replied, called and got back, in order.

It is read from the tree's facts. Facts that only the runtime needs are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from sessiontree.contracts.recorded.approvals import describe_decision
from sessiontree.contracts.recorded.codec import list_wire_parts
from sessiontree.contracts.reports.events import describe_exit
from sessiontree.contracts.values.messages import ToolResultMessage, decode_message
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.journal.record import JournalRecord, read_kind
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
            yield from indent_text(self.text, 4)


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


def build_transcript(
    records: Iterable[JournalRecord], session: str | None = None
) -> Iterator[TranscriptStep]:
    """Yield the steps of a tree's facts, in their order.

    Args:
        records: All facts of the tree, from the first.
        session: Only the steps of the session with this path; None = of all.

    Raises:
        JournalTooNew, JournalCorrupt: no release that is known here wrote a fact.
    """
    for given in derive_steps(records):
        if session is None or session == given.step.session:
            yield given.step


def derive_steps(records: Iterable[JournalRecord]) -> Iterator[StepOfFact]:
    """Yield the steps of a tree's facts, in their order, each with what it was read from.

    Raises:
        JournalTooNew, JournalCorrupt: no release that is known here wrote a fact.
    """
    asked_by: dict[str, str] = {}
    for record in records:
        if read_kind(record.text) not in _READ:
            continue
        for fact in list_wire_parts(UPCASTERS.upcast(record.to_json())):
            kind = str(fact["kind"])
            say = _STEPS.get(kind)
            if kind == "approval_requested":
                asked_by[fact["question"]["request_id"]] = str(fact["question"]["session"])
            for said in () if say is None else say(fact):
                whose = record.session or said.session or asked_by.get(str(fact.get("request_id")), MAIN)
                step = TranscriptStep(record.seq, record.at_ms, whose, said.what, said.text, said.is_failure)
                child = fact["spec"]["session_id"] if kind == "session_spawned" else ""
                yield StepOfFact(step, kind, said.key or str(fact.get("key") or ""), child)


def indent_text(text: str, spaces: int) -> Iterator[str]:
    """Yield the lines of a text, indented; at most ``MAX_TEXT_CHARS`` characters of it."""
    for line in shorten(text, MAX_TEXT_CHARS).split("\n"):
        yield f"{' ' * spaces}{line}"


def shorten(text: str, limit: int) -> str:
    """Return a text cut to a number of characters; it says how many are left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def _on_spawned(fact: Fact) -> Iterator[_Said]:
    spec = fact["spec"]
    yield _Said(f"spawned {spec['session_id']}", str(spec.get("task", "")), str(spec.get("parent") or MAIN))


def _spawn_denied(fact: Fact) -> Iterator[_Said]:
    yield _Said(f"spawn of a {fact['kind_']} refused", str(fact["reason"]), str(fact["parent"]), True)


def _on_received(fact: Fact) -> Iterator[_Said]:
    message = fact["message"]
    yield _Said(f"message from {message.get('origin', 'user')}", _join_text(message))


def _on_replied(fact: Fact) -> Iterator[_Said]:
    calls = 0
    for block in fact["message"]["content"]:
        if block["type"] == "toolCall":
            key, calls = f"{fact.get('turn', 0)}.{calls}", calls + 1
            yield _Said(f"call {block['name']}", _to_json(block["arguments"]), key=key)
        elif block["type"] == "text" and block["text"]:
            yield _Said("reply", block["text"])


def _reply_cut(fact: Fact) -> Iterator[_Said]:
    yield _Said("reply, cut because its tokens were used up", str(fact["text"]), is_failure=True)


def _reply_empty(fact: Fact) -> Iterator[_Said]:
    yield _Said("reply", "(empty; the model is asked once more)", is_failure=True)


def _on_opened(fact: Fact) -> Iterator[_Said]:
    yield _Said(f"call {fact['tool']} by the program", _to_json(fact["arguments"]))


def _on_program_started(fact: Fact) -> Iterator[_Said]:
    call, source = fact["call"], fact.get("source")
    yield _Said(f"program {call['key']} begins", "" if source is None else source["code"], key=call["key"])


def _on_program_advanced(fact: Fact) -> Iterator[_Said]:
    for note in fact.get("notes", ()):
        text = str(note["text"])
        if note["sort"] == "phase":
            yield _Said(f"phase {text}", "")
        elif note["sort"] == "fan_out":
            yield from _on_fan_out(text)
        else:
            yield _Said("program output", text)
    for asked in fact["calls"]:
        line = f" at line {asked['line']}" if asked.get("line") else ""
        yield _Said(f"program calls {asked['tool']}{line}", _to_json(asked["arguments"]))


def _on_fan_out(text: str) -> Iterator[_Said]:
    """Say what a note of the functions around a program means; any other note means nothing."""
    noted = read_fan_out(text)
    if noted is not None:
        number, word, count = noted
        more = f"ended, {count:,} not started" if word == "ended" else f"begins, {word} of {count:,}"
        yield _Said(f"fan-out {number} {more}", "")


def _on_rejected(fact: Fact) -> Iterator[_Said]:
    where = f" at {fact['field']}" if fact.get("field") else ""
    what = f"arguments of {fact['tool']} rejected, attempt {fact['attempt']}"
    yield _Said(what, f"{fact['reason']}{where}", is_failure=True)


def _on_resolved(fact: Fact) -> Iterator[_Said]:
    message = decode_message(fact["message"])
    if not isinstance(message, ToolResultMessage):
        return
    how = "error" if message.is_error else describe_exit(message)
    what = f"result of {message.tool_name}{'' if how is None else f' ({how})'}"
    yield _Said(what, _join_text(fact["message"]), is_failure=how is not None)


def _on_parked(fact: Fact) -> Iterator[_Said]:
    yield _Said(f"call {fact['message'].get('toolName', fact['key'])} waits", _join_text(fact["message"]))


def _on_requested(fact: Fact) -> Iterator[_Said]:
    question = fact["question"]
    call = question["call"]
    what = f"approval asked for {call['tool']}, request {question['request_id']}"
    yield _Said(what, _to_json(call["arguments"]), str(question["session"]))


def _on_decided(fact: Fact) -> Iterator[_Said]:
    refused = fact["decision"] != "approved"
    yield _Said(
        f"approval {describe_decision(fact['decision'], fact['by'])}", str(fact["reason"]), is_failure=refused
    )


def _on_failed(fact: Fact) -> Iterator[_Said]:
    yield _Said("no reply", str(fact["reason"]), is_failure=True)


def _on_interrupted(fact: Fact) -> Iterator[_Said]:
    yield _Said("interrupted", str(fact["reason"]), is_failure=True)


def _on_compacted(fact: Fact) -> Iterator[_Said]:
    yield _Said("summary of the older part", _join_text(fact["summary"]))


def _on_spent(fact: Fact) -> Iterator[_Said]:
    text = f"{fact['limit']}: {fact['used']:g} of {fact['allowed']:g}"
    yield _Said("budget spent", text, str(fact["account"]), True)


def _on_given_up(fact: Fact) -> Iterator[_Said]:
    yield _Said(f"gave up {fact['tool']}", str(fact["reason"]), is_failure=True)


def _hook_failed(fact: Fact) -> Iterator[_Said]:
    what = f"hook {fact['hook']} failed at {fact['point']}"
    yield _Said(what, str(fact["reason"]), str(fact.get("session", "")), True)


def _on_told(fact: Fact) -> Iterator[_Said]:
    yield _Said("message to the channel", str(fact["text"]), str(fact["session"]))


def _on_ended(fact: Fact) -> Iterator[_Said]:
    failed = fact["status"] != "completed"
    how = fact["result"].get("cause") or fact["status"]
    what, text = f"ended: {how}", str(fact["result"].get("summary", ""))
    yield _Said(what, text, str(fact["session"]), failed)


_STEPS: Final[Mapping[str, Callable[[Fact], Iterator[_Said]]]] = {
    "session_spawned": _on_spawned,
    "spawn_denied": _spawn_denied,
    "message_received": _on_received,
    "turn_replied": _on_replied,
    "reply_cut": _reply_cut,
    "reply_empty": _reply_empty,
    "turn_failed": _on_failed,
    "call_opened": _on_opened,
    "program_started": _on_program_started,
    "program_advanced": _on_program_advanced,
    "arguments_rejected": _on_rejected,
    "call_parked": _on_parked,
    "call_resolved": _on_resolved,
    "approval_requested": _on_requested,
    "approval_decided": _on_decided,
    "context_compacted": _on_compacted,
    "budget_spent": _on_spent,
    "tool_given_up": _on_given_up,
    "hook_failed": _hook_failed,
    "outside_hook_failed": _hook_failed,
    "interrupted": _on_interrupted,
    "channel_said": _on_told,
    "session_ended": _on_ended,
}
"""By kind of fact, what is said of it."""
_READ: Final = frozenset({*_STEPS, "opened"})
"""Kinds of facts of which something is said, or that may hold such facts."""


def _join_text(message: Mapping[str, Any]) -> str:
    return "\n".join(
        str(block["text"]) if block["type"] == "text" else f"({block['type']})"
        for block in message["content"]
    )


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
