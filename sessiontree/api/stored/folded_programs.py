"""A transcript in which each program is one step: its phases, text and counts, and the calls that matter.

The calls of a program, what it prints, and the steps of the children that it started are left out. Requests
for approvals stay, because people decide them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from sessiontree.api.stored.transcript import StepOfFact, TranscriptStep, derive_steps
from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.facts import session_facts as said
from sessiontree.contracts.facts.tree_facts import Fact
from sessiontree.contracts.recorded.programs import is_of_program
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.view.program_panel import FEW, ProgramPanel, count_words, list_keys, make_panel
from sessiontree.view.rows import build_program_json

MAX_CODE_LINES: Final = 40
"""A program of more lines is shown by its first lines and those near one that waits."""
MAX_LINE_CHARS: Final = 110
_NEAR: Final = 2
"""Lines shown on both sides of one that waits."""
_FIRST: Final = 10
_OF_PROGRAMS: Final = frozenset({
    "program_started", "program_advanced", "approval_wanted", "approval_settled", "call_delegated",
    "child_awaited", "call_resolved",
})  # fmt: skip
"""Kinds of records that say what a program does, or that may hold such facts."""
_OF_PEOPLE: Final = frozenset({"approval_requested", "approval_decided"})


@dataclass(frozen=True, slots=True)
class ProgramTranscriptStep(TranscriptStep):
    """A program with all that it did; its text is bounded and safe to be shown."""

    def lines(self) -> Iterator[str]:
        """Yield it as lines for people."""
        yield f"[{self.seq}] {self.session}: {self.what}"
        yield from (f"    {line}" for line in self.text.split("\n"))


def fold_transcript(records: Iterable[JournalRecord], session: str | None = None) -> list[TranscriptStep]:
    """Return the steps of a tree's facts, in their order; each program is one step.

    A program that another one calls is a step of its own only as long as it runs.

    Args:
        records: All facts of the tree, from the first.
        session: Only the steps of the session with this path, even if a program started it; None = of all.

    Raises:
        JournalTooNew, JournalCorrupt: no release that is known here wrote a fact.
    """
    programs = _Programs()
    steps = list(derive_steps(programs.watch(records)))
    children = programs.children()
    return [
        programs.fold(each)
        for each in steps
        if session in (None, each.step.session)
        and (each.kind in _OF_PEOPLE or not _is_hidden(each, programs, children, is_whole=session is None))
    ]


class _Programs:
    """The programs of a tree, by session and key."""

    def __init__(self) -> None:
        self._panels: dict[tuple[str, str], ProgramPanel] = {}

    def watch(self, records: Iterable[JournalRecord]) -> Iterator[JournalRecord]:
        """Yield the records, and take in what they say of programs."""
        for record in records:
            if record.session and read_kind(record.text) in _OF_PROGRAMS:
                for fact in record.facts:
                    self._take(record, fact)
            yield record

    def _take(self, record: JournalRecord, fact: Fact) -> None:
        if isinstance(fact, said.ProgramStarted):
            self._panels[record.session, fact.call.key] = make_panel(fact)
            return
        for key in list_keys(fact):
            panel = self._panels.get((record.session, key))
            if panel is not None:
                panel.take(fact, record.seq)

    def children(self) -> frozenset[str]:
        """Return the paths of the sessions that programs started; each is below its program's session."""
        return frozenset(
            step.session
            for (session, _), panel in self._panels.items()
            for step in panel.steps
            if step.session.startswith(f"{session}/")
        )

    def find(self, session: str, key: str) -> ProgramPanel | None:
        """Return a session's program; None if the key is that of another call."""
        return self._panels.get((session, key))

    def fold(self, given: StepOfFact) -> TranscriptStep:
        """Return the whole program at the step with which it begins; any other step as it is."""
        step = given.step
        panel = self.find(step.session, given.key) if given.kind == "program_started" else None
        if panel is None:
            return step
        what = f"{make_visible(panel.tool)} {panel.key} "
        what += f"ended ({panel.outcome})" if panel.outcome else "runs"
        text = "\n".join(render_program(panel))
        return ProgramTranscriptStep(step.seq, step.at_ms, step.session, what, text)


def _is_hidden(given: StepOfFact, programs: _Programs, children: frozenset[str], *, is_whole: bool) -> bool:
    """Return whether the step of a program says enough of this one."""
    step, key = given.step, given.key
    if given.child in children or (is_whole and _is_below(step.session, children)):
        return True
    panel = programs.find(step.session, key)
    if given.kind == "program_started" and panel is not None:
        return is_of_program(key) and bool(panel.outcome)
    is_call = given.kind in {"turn_replied", "call_opened", "program_advanced"}
    return is_of_program(key) or (is_call and panel is not None)


def _is_below(session: str, children: frozenset[str]) -> bool:
    while session:
        if session in children:
            return True
        session = session.rpartition("/")[0]
    return False


def render_program(panel: ProgramPanel) -> Iterator[str]:
    """Yield what there is to see of a program, safe to be shown; its lines have a bound."""
    told = build_program_json(panel)
    if told["phases"]:
        yield _cut(f"phases: {', '.join(told['phases'])}")
    yield from _render_code(panel.code, {} if panel.outcome else dict(told["lines"]))
    yield _cut(panel.call_words())
    yield from (_cut(count_words(each)) for each in list(panel.fan_outs.values())[-FEW:])
    children = [step.session for step in panel.steps if step.session]
    if children:
        to = f" to {children[-1]}" if len(children) > 1 else ""
        yield _cut(f"children: {children[0]}{to}; name one to see its steps")
    seen: set[int] = set()
    under_way = [] if panel.outcome else told["open"]
    for words, steps in (("under way", under_way), ("failed", told["failed"]), ("ended last", told["last"])):
        fresh = [step for step in steps if step["number"] not in seen]
        seen.update(step["number"] for step in fresh)
        if fresh:
            yield f"{words}:"
            yield from (_cut(f"  {_call_line(step)}") for step in fresh)
    yield from (_cut(f"it said: {text}") for _, text in told["notes"])


def _call_line(step: dict[str, Any]) -> str:
    where = f", line {step['line']}" if step["line"] else ""
    whose = f", {step['session']}" if step["session"] else ""
    return f"{step['words']}: {step['tool']}{where}{whose}: {step['result'] or step['gist']}"


def _render_code(code: str, waits: dict[int, int]) -> Iterator[str]:
    """Yield a program's lines with their numbers; those that wait have a mark in front of them."""
    lines = code.rstrip().split("\n")
    kept = range(1, len(lines) + 1) if len(lines) <= MAX_CODE_LINES else _select_lines(len(lines), waits)
    last = 0
    for at in kept:
        if at > last + 1:
            yield f"       … {_format_line_count(at - last - 1)}"
        count, last = waits.get(at, 0), at
        mark = f"[{count:,} wait{'s' if count == 1 else ''}] " if count else ""
        yield _cut(f"{'>' if count else ' '}{at:>5}  {mark}{make_visible(lines[at - 1])}")
    if last < len(lines):
        yield f"       … {_format_line_count(len(lines) - last)}"


def _select_lines(total: int, waits: dict[int, int]) -> list[int]:
    """Return the numbers of the first lines, and of those near one that waits."""
    near = {at + by for at in sorted(waits)[:FEW] for by in range(-_NEAR, _NEAR + 1)}
    return sorted(at for at in near | set(range(1, _FIRST + 1)) if 1 <= at <= total)


def _format_line_count(count: int) -> str:
    return f"{count:,} more line{'' if count == 1 else 's'}"


def _cut(line: str) -> str:
    return line.rstrip() if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 1]}…"
