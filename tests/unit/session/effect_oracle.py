"""Books of what really ran, on every host a session ever had.

P22: nothing runs with arguments that do not fit. P25: nothing runs twice on one host. S16: nothing runs
without the approval it needs. S42: nothing that may not be repeated runs twice, ever. S43: no effect before
its intent is durable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sessiontree.contracts.facts.session_facts import CallIntended, SessionFact
from sessiontree.session.instructions import ExecuteCall
from tests.unit.session.call_oracle import CallBook
from tests.unit.session.judge_oracle import Judge
from tests.unit.session.session_fixtures import TOOLS, digest, fits


class EffectBooks:
    """What ran; stays, whatever facts are lost."""

    def __init__(self, judge: Judge) -> None:
        """Know of nothing that ran."""
        self.judge = judge
        self.begun: Counter[str] = Counter()
        """Calls above ReadOnly."""
        self.here: set[str] = set()
        """Calls begun on this host."""
        self._durable: set[str] = set()
        self._committed: set[str] = set()
        self.approved: set[str] = set()
        """Calls whose intent was made durable with their approval, whether or not the session knows of it."""
        self.inherited: set[str] = set()
        """Calls whose intent was durable before this host; it may hear so late, when they run again."""

    def reported(self, facts: Sequence[SessionFact]) -> None:
        """Note that these facts are durable."""
        self._durable = {fact.call.key for fact in facts if isinstance(fact, CallIntended)}

    def read_committed(self, keys: Iterable[str]) -> None:
        """Note that the session learned that these intents are durable."""
        self._committed.update(keys)

    def rolled_back(self) -> None:
        """Another host begins from what is durable."""
        self.here.clear()
        self._committed |= self._durable
        self.inherited = set(self._durable)

    def told(self, call: CallBook | None, execute: ExecuteCall, *, again: bool) -> None:
        """Judge the instruction to run a call; ``again``: it may come a second time and be passed over."""
        checked, key = execute.call, execute.call.key
        self.judge.require(call is not None and call.resolved is None, "P33", f"{key} runs and is not open")
        if call is None:
            return
        asked = call.asked
        right = fits(asked) and (checked.tool, checked.arguments) == (asked.name, asked.arguments)
        self.judge.require(right, "P22", f"{key} runs with arguments that do not fit")
        self.judge.require(again or key not in self.here, "P25", f"{key} runs twice on one host")
        card = TOOLS.get(asked.name)
        if card is not None and card.tier and key not in self.here:
            durable = call.intended is not None and key in self._durable & self._committed
            self.judge.require(durable, "S43", f"{key} runs and its intent is not durable")
            allowed = not card.needs_approval or call.decision == "approved" or key in self.approved
            self.judge.require(allowed and checked.digest == digest(asked), "S16", f"{key} was not allowed")
            once = card.repeatable or not self.begun[key]
            self.judge.require(once, "S42", f"{key} may not be repeated and runs again")
            self.begun[key] += 1
        self.here.add(key)
