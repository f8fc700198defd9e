"""Watch: a survey's progress, read from its durable facts."""

from __future__ import annotations

import json
from typing import NamedTuple

from sessiontree.contracts.jsonable import dump_readable
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.session_facts import Rested
from sessiontree.contracts.tree_facts import ApprovalDecided, ApprovalRequested, SessionEnded, SessionSpawned
from sessiontree.journal.record import Record
from sessiontree.runtime.replay import fact_of
from sessiontree.survey.finding import GroupFindings
from sessiontree.survey.screen import View
from sessiontree.survey.words import LastWord, last_word_of

_MAIN = "main"


class WatchLine(NamedTuple):
    """A line a fact is worth."""

    line: str
    is_routine: bool
    """Whether a picture of the tree tells it too."""


class SurveyWatch:
    """Takes facts in, in order, and keeps how far the survey is.

    Args:
        view: Is told the same; None = nobody looks.
    """

    def __init__(self, view: View | None = None) -> None:
        self._view = view
        self.spawned = 0
        self.ended = 0
        self.files_done = 0
        self.files: int | None = None
        """How many there are; None until Main has a plan."""
        self.is_ordered = False
        """Whether Main was told what to do."""
        self.last_word: LastWord | None = None
        self.failure: str | None = None
        """Why the survey can't go on."""
        self._kinds: dict[str, SessionKind] = {}
        self._asked_for: dict[str, str] = {}

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.last_word is not None or self.failure is not None

    def take(self, record: Record) -> WatchLine | None:
        """Take a fact in; return the line it is worth, if any."""
        if self._view is not None:
            self._view.take(record)
        # most facts are long and tell of nothing seen here: their beginning says so
        if record.session == "":
            return self._of_tree(record)
        if record.session == _MAIN:
            self._of_main(record)
        return None

    def _of_tree(self, record: Record) -> WatchLine | None:
        if record.text.startswith('{"kind":"session_spawned"'):
            return self._spawned(fact_of(record.text))
        if record.text.startswith('{"kind":"session_ended"'):
            return self._ended(fact_of(record.text))
        if record.text.startswith('{"kind":"approval_requested"'):
            return self._asked(fact_of(record.text))
        if record.text.startswith('{"kind":"approval_decided"'):
            return self._decided(fact_of(record.text))
        return None

    def _of_main(self, record: Record) -> None:
        if record.text.startswith('{"kind":"heard"'):
            self.is_ordered = True
        elif self.files is None and record.text.startswith('{"kind":"call_resolved"'):
            self._planned(fact_of(record.text).message.text)
        elif record.text.startswith('{"kind":"rested"'):
            self._rested(fact_of(record.text))

    def _spawned(self, fact: SessionSpawned) -> WatchLine | None:
        self.spawned += 1
        spec = fact.spec
        self._kinds[spec.session_id] = spec.kind
        if spec.parent is None:
            return None
        return WatchLine(f"started {spec.session_id}: {spec.kind} {spec.label}", is_routine=True)

    def _ended(self, fact: SessionEnded) -> WatchLine:
        self.ended += 1
        kind = self._kinds[fact.session]
        if fact.session == _MAIN and not self.is_over:
            self.failure = f"main ended {fact.status}: {fact.result.summary}"
        line = f"ended {fact.session}: {kind} {fact.status}"
        if fact.status is not SessionStatus.COMPLETED:
            return WatchLine(f"{line}: {fact.result.summary}", is_routine=False)
        if kind is not SessionKind.WORKER:
            return WatchLine(line, is_routine=True)
        files = GroupFindings.model_validate(fact.result.output).files
        self.files_done += files
        if self._view is not None:
            self._view.count(fact.session, files)
        return WatchLine(f"{line}, {self.files_done:,} of {self.files or 0:,} files", is_routine=True)

    def _asked(self, fact: ApprovalRequested) -> WatchLine:
        self._asked_for[fact.request_id] = f"{fact.tool} {dump_readable(fact.arguments)}"
        line = f"asked for approval: {fact.session} wants {self._asked_for[fact.request_id]}"
        return WatchLine(line, is_routine=False)

    def _decided(self, fact: ApprovalDecided) -> WatchLine:
        why = f", {fact.reason}" if fact.reason else ""
        line = f"{fact.decision} by {fact.by}: {self._asked_for[fact.request_id]}{why}"
        return WatchLine(line, is_routine=False)

    def _planned(self, text: str) -> None:
        try:
            self.files = json.loads(text)["files"]
        except (ValueError, KeyError):  # the plan failed; Main says why
            self.files = None
        if self._view is not None and self.files is not None:
            self._view.expect(self.files)

    def _rested(self, fact: Rested) -> None:
        if fact.error is not None:
            self.failure = fact.error
        else:
            self.last_word = last_word_of(fact.text)
