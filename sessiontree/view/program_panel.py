"""One program of a session: its phases, its calls, what waits at which line, and the counts of its children.

It is made from the session's facts, one after another; a fact costs O(what it says). All text in it comes
from a model, a tool or a person: it is cut, and made visible before it is shown.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.facts import session_facts as said
from sessiontree.contracts.facts.tree_facts import Fact
from sessiontree.contracts.reports.events import describe_exit
from sessiontree.contracts.reports.fan_outs import SAYS_NOTHING
from sessiontree.contracts.values.jsonable import dump_readable
from sessiontree.contracts.values.messages import TextContent, ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import dataclass

GIST_CHARS: Final = 120
"""Longest text of a call, a note or an error in a panel, before invisible characters are made visible."""
FEW: Final = 8
"""Most calls of one sort that a panel shows by itself."""
MAX_PHASES: Final = 40
"""Most phases that a panel keeps, the newest ones."""
StepState: TypeAlias = Literal["running", "approval", "answer", "child", "done", "failed", "lost"]
"""What a call of a program does, or how it ended; ``lost`` says nothing about its task."""
WORDS: Final[dict[StepState, str]] = {
    "running": "running",
    "approval": "waiting for approval",
    "answer": "waiting for an answer",
    "child": "waiting for a child",
    "done": "done",
    "failed": "failed",
    "lost": "lost",
}
_ENDED: Final = frozenset[StepState]({"done", "failed", "lost"})
_FAN_OUT: Final = re.compile(r"(\d{1,9}) (map|race|ended) (\d{1,9})")


@dataclass(slots=True)
class ProgramStep:
    """One call of a program."""

    number: int
    """Its place among the program's calls, from 0."""
    tool: str
    gist: str
    line: int
    """The program's line that asked for it, from 1; 0 = a function around the program did."""
    fan_out: int
    """The fan-out that it is part of, from 1; 0 = none."""
    is_child: bool
    """Whether its answer is the report of a child."""
    seq: int
    """Number of the fact that asked for it."""
    state: StepState = "running"
    session: str = ""
    """The child's path, once it is known."""
    result: str = ""
    """What was wrong; empty if nothing was."""
    ended_seq: int = 0
    """Number of the fact of its result; 0 = it has none."""


@dataclass(slots=True)
class ProgramFanOut:
    """The children of one ``map`` or ``race``."""

    function: str
    tasks: int
    begun: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    """Children by their state at the end."""
    not_started: int | None = None
    """None = it goes on."""

    @property
    def running(self) -> int:
        """Children under way."""
        return self.begun - self.ended.total()

    @property
    def left(self) -> int:
        """Tasks that have no child: after the end they never get one."""
        return max(0, self.tasks - self.begun) if self.not_started is None else self.not_started


class ProgramPanel:
    """A program, as viewers see it.

    Args:
        key: The key of its call.
        tool: The tool that it is a call of.
        code: Its text.
    """

    def __init__(self, key: str, tool: str, code: str) -> None:
        self.key = key
        self.tool = tool
        self.code = code
        self.outcome = ""
        """How it ended; empty = it goes on."""
        self.phases: deque[str] = deque(maxlen=MAX_PHASES)
        self.notes: deque[tuple[str, str]] = deque(maxlen=FEW)
        """What it printed and logged last."""
        self.steps: list[ProgramStep] = []
        self.open: dict[int, ProgramStep] = {}
        """Calls without a result, by number."""
        self.now: Counter[StepState] = Counter()
        """Calls without a result, by what they do."""
        self.lines: Counter[int] = Counter()
        """How many calls wait at each line, as far as lines are known."""
        self.last: deque[ProgramStep] = deque(maxlen=FEW)
        """Calls that ended last."""
        self.counts: Counter[StepState] = Counter()
        """Calls by their state at the end."""
        self.failed: deque[ProgramStep] = deque(maxlen=FEW)
        """Calls that failed or were lost last."""
        self.fan_outs: dict[int, ProgramFanOut] = {}
        self.under_way: dict[int, ProgramFanOut] = {}
        """Fan-outs that go on."""
        self._only_lines: dict[str, int] = {}
        """The one line of the text that calls a function; 0 = several may."""

    def take(self, fact: Fact, seq: int) -> None:
        """Take in a fact of this program or of one of its calls."""
        match fact:
            case said.ProgramAdvanced():
                self._on_advanced(fact, seq)
            case said.ApprovalWanted(call=call):
                self._set_state(call.key, "approval")
            case said.ApprovalSettled(key=key):
                self._set_state(key, "running")
            case said.CallDelegated(call=call):
                self._set_state(call.key, "answer")
            case said.ChildAwaited(key=key, message=message):
                self._set_state(key, "child")
                step = self._step(key)
                if step is not None:
                    step.session = _read_json_text(message, "session_id")
            case said.CallResolved(key=key) if key == self.key:
                self.outcome = fact.outcome
            case said.CallResolved():
                self._on_resolved(fact, seq)

    @property
    def waits_for_children(self) -> bool:
        """Whether all that it waits for is children."""
        return bool(self.open) and self.now["child"] == len(self.open)

    def words(self) -> str:
        """Return what it does in one line, safe to be shown."""
        parts = [f"phase {self.phases[-1]}"] if self.phases else []
        fan_outs = list(self.under_way.values())
        parts += [count_words(each) for each in fan_outs[-2:]] or [self.call_words()]
        waits = sorted(+self.lines)
        if waits:
            more = f" and {len(waits) - 3:,} more" if len(waits) > 3 else ""
            parts.append(f"line{'s' if len(waits) > 1 else ''} {', '.join(map(str, waits[:3]))}{more}")
        return "; ".join(parts)

    def call_words(self) -> str:
        """Return the counts of all its calls in words."""
        waiting = [f"{self.now[state]:,} {words}" for state, words in WORDS.items() if self.now[state]]
        ended = [f"{self.counts[state]:,} {state}" for state in WORDS if self.counts[state]]
        calls = f"{len(self.steps):,} call{'' if len(self.steps) == 1 else 's'}"
        return f"{calls}: {', '.join([*waiting, *ended])}" if self.steps else "no calls yet"

    def _step(self, key: str) -> ProgramStep | None:
        number = key.rpartition("/")[2]
        at = int(number) if number.isascii() and number.isdecimal() else -1
        return self.steps[at] if 0 <= at < len(self.steps) else None

    def _on_advanced(self, fact: said.ProgramAdvanced, seq: int) -> None:
        for note in fact.notes:
            # Cut first: making a megabyte visible only to drop it would cost time for each note.
            text = make_visible(note.text.strip()[:GIST_CHARS])
            if note.sort == "phase":
                self.phases.append(text)
            elif note.sort == "fan_out":
                self._note_fan_out(note.text)
            else:
                self.notes.append((note.sort, text))
        for number, call in enumerate(fact.calls, start=fact.first):
            # The list is indexed by number: a fact that leaves a gap or repeats a number must not shift the
            # others.
            if number != len(self.steps):
                continue
            gist = make_visible(dump_readable(call.arguments)[:GIST_CHARS])
            line = call.line or (self._find_only_line(call.fan_out) if call.awaits else 0)
            step = ProgramStep(number, make_visible(call.tool), gist, line, call.fan_out, call.awaits, seq)
            self.steps.append(step)
            self.open[number] = step
            self.now[step.state] += 1
            self.lines[line] += line > 0
            if call.fan_out in self.fan_outs:
                self.fan_outs[call.fan_out].begun += 1

    def _note_fan_out(self, text: str) -> None:
        """Take in what the functions around the program say of a fan-out; anything else is ignored."""
        noted = read_fan_out(text)
        if noted is None:
            return
        number, word, count = noted
        if word != "ended":
            self.fan_outs[number] = self.under_way[number] = ProgramFanOut(word, count)
        elif number in self.fan_outs:
            self.fan_outs[number].not_started = count
            self.under_way.pop(number, None)

    def _set_state(self, key: str, state: StepState) -> None:
        step = self._step(key)
        if step is not None and step.state not in _ENDED:
            self.now[step.state] -= 1
            self.now[state] += 1
            step.state = state

    def _on_resolved(self, fact: said.CallResolved, seq: int) -> None:
        step = self._step(fact.key)
        # The counts are moved once for each call, whatever the facts repeat.
        if step is None or step.state in _ENDED:
            return
        self.now[step.state] -= 1
        self.lines[step.line] -= step.line > 0
        step.state, step.ended_seq = _choose_end(step, fact), seq
        if step.is_child and not step.session:  # it reported before its start was noted
            step.session = _read_json_text(fact.message, "session")
        self.last.append(step)
        if step.state != "done":
            step.result = make_visible(_choose_shown_text(fact.message)[:GIST_CHARS])
            self.failed.append(step)
        self.open.pop(step.number, None)
        self.counts[step.state] += 1
        if step.fan_out in self.fan_outs:
            self.fan_outs[step.fan_out].ended[step.state] += 1

    def _find_only_line(self, number: int) -> int:
        """Return the one line that may have started a child; 0 = several may have.

        The interpreter tells only the line in the functions around the program.
        """
        fan_out = self.fan_outs.get(number)
        function = "spawn" if fan_out is None else fan_out.function
        if function not in self._only_lines:
            call = re.compile(rf"\b{function}\s*\(")
            found = [at for at, line in enumerate(self.code.split("\n"), 1) if call.search(line)]
            self._only_lines[function] = found[0] if len(found) == 1 else 0
        return self._only_lines[function]


def count_words(fan_out: ProgramFanOut) -> str:
    """Return the counts of a fan-out in words."""
    ended = fan_out.ended
    return (
        f"{fan_out.function} of {fan_out.tasks:,}: {fan_out.running:,} running, {ended['done']:,} done, "
        f"{ended['failed']:,} failed, {ended['lost']:,} lost, {fan_out.left:,} not started"
    )


def read_fan_out(text: str) -> tuple[int, str, int] | None:
    """Return what a note says of a fan-out; None if it says nothing of one.

    It is the fan-out's number, the function or ``ended``, and how many tasks it has or did not start.
    """
    match = _FAN_OUT.fullmatch(text)
    return None if match is None else (int(match[1]), match[2], int(match[3]))


def collect_programs(facts: Iterator[tuple[int, Fact]]) -> dict[str, ProgramPanel]:
    """Return the programs of one session by key, from its facts with their numbers."""
    found: dict[str, ProgramPanel] = {}
    for seq, fact in facts:
        if isinstance(fact, said.ProgramStarted):
            found[fact.call.key] = make_panel(fact)
        else:
            for key in list_keys(fact):
                if key in found:
                    found[key].take(fact, seq)
    return found


def make_panel(fact: said.ProgramStarted) -> ProgramPanel:
    """Return the panel of a program that has just begun."""
    return ProgramPanel(fact.call.key, fact.call.tool, find_text(fact))


def find_text(fact: said.ProgramStarted) -> str:
    """Return the text of a program: that of its call, or that of the saved program that was called."""
    return fact.source.code if fact.source is not None else str(fact.call.arguments.get("code", ""))


def list_keys(fact: Fact) -> tuple[str, ...]:
    """Return the keys of the programs that a fact is about: the call's own, and that of the one around it."""
    call = getattr(fact, "call", None)
    key = str(getattr(call, "key", "") or getattr(fact, "key", ""))
    above = key.rpartition("/")[0]
    return tuple(filter(None, (key, above)))


def _choose_end(step: ProgramStep, fact: said.CallResolved) -> StepState:
    if fact.outcome == "unknown":
        return "lost"
    if step.is_child and not fact.message.is_error:
        report = _parse_object(fact.message)
        how = report.get("cause") or report.get("status")
        return "done" if how == "completed" else "lost" if how in SAYS_NOTHING else "failed"
    return "failed" if fact.message.is_error or describe_exit(fact.message) is not None else "done"


def _choose_shown_text(message: ToolResultMessage) -> str:
    """Return the reason in a result, or its beginning."""
    told = _parse_object(message)
    for name in ("error", "reason", "summary"):
        if isinstance(told.get(name), str):
            return str(told[name])
    return _join_text(message)


def _parse_object(message: ToolResultMessage) -> dict[str, Any]:
    try:
        told = json.loads(_join_text(message))
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _read_json_text(message: ToolResultMessage, name: str) -> str:
    value = _parse_object(message).get(name)
    return make_visible(value[:GIST_CHARS]) if isinstance(value, str) else ""


def _join_text(message: ToolResultMessage) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextContent))
