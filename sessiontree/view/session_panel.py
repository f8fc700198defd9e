"""One session of a live tree: its state, what it waits for, and the calls that are under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.programs import is_of_program
from sessiontree.contracts.recorded.results import ResultCause
from sessiontree.contracts.reports.events import get_display
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.values.jsonable import dump_readable, to_json_value
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.replay import read_fact
from sessiontree.view.program_panel import ProgramPanel

MAX_NAME_CHARS = 80
"""Longest step and label, before invisible characters are made visible."""
MAX_CALL_CHARS = 160
"""Longest description of a call, before invisible characters are made visible."""
_CAUSES: Final[Mapping[ResultCause, str]] = {
    "provider": "its provider refuses for good",
    "budget": "a budget is used up",
    "lost": "its host was lost too often",
}


@dataclass(slots=True)
class SessionPanel:
    """One session, living or ended, and the counts of all below it."""

    session_id: str
    kind: SessionKind
    label: str
    parent: str | None
    status: SessionStatus = SessionStatus.ACTIVE
    number: int = 0
    """Its row: its place in spawn order, from 0."""
    spawned_seq: int = 0
    """Number of the fact that spawned it."""
    seq: int = 0
    """Number of its newest fact that was taken in."""
    parent_number: int | None = None
    """Row of its parent."""
    began_ms: int = 0
    ended_ms: int | None = None
    failures: int = 0
    """Calls and turns of its own that failed."""
    is_ended: bool = False
    cause: ResultCause = ""
    """Why it failed, if that says nothing about its task."""
    is_stopping: bool = False
    live_children: dict[str, SessionPanel] = field(default_factory=dict, repr=False)
    """In the order they were spawned."""
    live_below: int = 0
    ended_below: int = 0
    done: int = 0
    """Count of finished work here and below."""
    turns: int = 0
    usage: Usage = Usage()
    """What it used itself; not what sessions below it used."""
    account: SessionPanel | None = field(default=None, repr=False)
    """The session whose budget it uses; None = it is not known."""
    budget: Budget | None = None
    """What is reserved for it and those below it, if it has a budget of its own."""
    charged: Usage = Usage()
    """What was charged to its budget, by it and by those below it that use it."""
    is_asking: bool = False
    """Whether the model was asked and has not replied."""
    pending: dict[str, str] = field(default_factory=dict)
    """Open approval requests: what each wants to call."""
    questions: dict[str, str] = field(default_factory=dict)
    """Its questions that wait for a person, in few words."""
    running: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Calls that events say are running: tool and arguments by the provider's id."""
    asked: dict[str, str] = field(default_factory=dict)
    """Facts of calls the program asked for, by key, without a result."""
    reply: str = field(default="", repr=False)
    """The fact of the last reply; looked into when it is shown."""
    result: str = field(default="", repr=False)
    """The fact of the last call that has a result; looked into when it is shown."""
    failed_turn: str = field(default="", repr=False)
    """The fact of the last turn that failed and was not followed by another; looked into when it is shown."""
    programs: dict[str, ProgramPanel] = field(default_factory=dict, repr=False)
    """Its programs that run, by key."""
    settled: set[str] = field(default_factory=set)
    """Keys of its calls that have a result or no longer wait for one."""
    _calls: list[tuple[str, str]] | None = None
    """Calls of the reply, key and description, once they were looked at."""
    _running_texts: dict[str, str] = field(default_factory=dict)
    """Descriptions of running calls that were looked at."""
    _name: str = ""

    @property
    def name(self) -> str:
        """The last step of its path and its label, safe to be shown."""
        if not self._name:
            step = self.session_id.rpartition("/")[2]
            self._name = make_visible(f"{step[:MAX_NAME_CHARS]} {self.label[:MAX_NAME_CHARS]}".rstrip())
        return self._name

    def began(self, call_id: str, tool: str, arguments: Mapping[str, Any]) -> None:
        """Note that a call is running; O(1)."""
        self.running[call_id] = (tool, arguments)
        self._running_texts.pop(call_id, None)

    def tried(self, call_id: str, attempt: int, attempts: int) -> None:
        """Note that an attempt at a running call failed, and the next follows."""
        if call_id in self.running:
            text = call_text(*self.running[call_id])
            self._running_texts[call_id] = f"attempt {attempt + 1} of {attempts}: {text}"

    def call_over(self, call_id: str) -> None:
        """Note that a call no longer runs."""
        self.running.pop(call_id, None)
        self._running_texts.pop(call_id, None)

    def on_replied(self, text: str) -> None:
        """Process the fact of a reply; O(1)."""
        self.is_asking = False
        self.reply = text
        self.failed_turn = ""
        # Keys name the turn, so those of an earlier reply can't match any more and would only be kept.
        self.settled.clear()
        self._calls = None

    def end(self, status: SessionStatus) -> None:
        """Set the final state and drop data that only a live session needs."""
        self.status = status
        self.is_ended = True
        self.is_asking = False
        self.on_replied("")
        self.result = ""
        self.pending.clear()
        self.questions.clear()
        self.running.clear()
        self._running_texts.clear()
        self.asked.clear()
        self.programs.clear()

    def calls(self) -> list[str]:
        """Return what calls are under way, as short descriptions, those that wait for an approval first."""
        found = [*self.pending.values(), *self.questions.values()]
        found += [call_text(f"{each.tool}:", each.words()) for each in self.programs.values()]
        # The calls of a program are in its own row.
        found += [self._get_running_text(each) for each in self.running if not self._is_in_program(each)]
        if not found:
            found += [_format_asked_call(text) for text in self.asked.values()]
            found += [shown for key, shown in self._reply_calls() if key not in self.settled]
        return found

    def get_last_display(self) -> str:
        """Return what the tool whose call ended last said to people, safe to be shown; empty for nothing."""
        if not self.result:
            return ""
        message = read_fact(self.result).message
        display = get_display(message)
        return "" if display is None else make_visible(f"{message.tool_name}: {display}"[:MAX_CALL_CHARS])

    def state(self) -> str:
        """Return its state, in words: a final status, or what it is waiting for."""
        if self.is_ended:
            return self.status.value
        if self.pending:
            return "waiting for approval"
        if self.questions:
            return "waiting for an answer"
        if self.is_stopping:
            return "stopping"
        if self.live_children and any(each.waits_for_children for each in self.programs.values()):
            return "waiting for children"
        # After the children, because a program that only waits for children has a call that runs.
        if self.running or self.asked:
            return "calling"
        if self.is_asking:
            return "waiting for model"
        if self.status is SessionStatus.SUSPENDED:
            return "waiting for children" if self.live_children else "suspended"
        return "calling" if self.calls() else "active"

    def reason(self) -> str:
        """Return what it waits for, or what ended it but its task, in safe words; empty for nothing."""
        if self.is_ended:
            return _CAUSES.get(self.cause, "")
        if self.pending:
            more = len(self.pending) - 1
            first = next(iter(self.pending.values())).partition(" ")[0]
            return f"approval of {first}" + (f" and {more} more" if more else "")
        if self.questions:
            more = len(self.questions) - 1
            return "an answer of a person" + (f" and {more} more" if more else "")
        if self.failed_turn:
            return make_visible(
                f"asks the model again: {read_fact(self.failed_turn).reason}"[:MAX_CALL_CHARS]
            )
        if self.live_children and not (self.running or self.asked or self.is_asking or self.programs):
            count = len(self.live_children)
            return f"{count:,} {'child' if count == 1 else 'children'}"
        return ""

    def budget_left(self) -> float | None:
        """Return which part is left of the tightest limit of the budget it uses; None = it has no limit."""
        account = self if self.budget is not None else self.account
        if account is None or account.budget is None:
            return None
        used, budget = account.charged, account.budget
        limits = (
            (budget.tokens, used.tokens),
            (budget.cost_usd, used.cost_usd),
            (budget.tool_calls, used.tool_calls),
        )
        shares = [1 - amount / limit if limit else 0.0 for limit, amount in limits if limit is not None]
        return max(0.0, min(shares)) if shares else None

    def _is_in_program(self, call_id: str) -> bool:
        is_program = self.running[call_id][0] in {each.tool for each in self.programs.values()}
        return bool(self.programs) and (is_program or is_of_program(call_id))

    def _get_running_text(self, call_id: str) -> str:
        text = self._running_texts.get(call_id)
        if text is None:
            text = self._running_texts[call_id] = call_text(*self.running[call_id])
        return text

    def _reply_calls(self) -> list[tuple[str, str]]:
        if self._calls is None:
            self._calls = []
            if self.reply:
                fact = read_fact(self.reply)
                for index, call in enumerate(fact.message.tool_calls):
                    self._calls.append((f"{fact.turn}.{index}", call_text(call.name, call.arguments)))
        return self._calls


def call_text(tool: str, arguments: Mapping[str, Any] | str) -> str:
    """Return a call in few words, safe to be shown: its name and the beginning of its arguments or text."""
    try:
        given = arguments if isinstance(arguments, str) else dump_readable(to_json_value(arguments))
    except (ValueError, TypeError, RecursionError):
        given = "(arguments that have no JSON form)"
    text = f"{tool} {given}"
    return make_visible(text if len(text) <= MAX_CALL_CHARS else f"{text[: MAX_CALL_CHARS - 1]}…")


def _format_asked_call(text: str) -> str:
    fact = read_fact(text)
    return call_text(fact.tool, fact.arguments)
