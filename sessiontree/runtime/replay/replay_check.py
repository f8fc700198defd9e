"""Replay of a stored tree: its rules decide again on what is recorded, and every fact is compared.

Nothing is asked, called or written. A recorded fact that the rules do not lead to is a difference; the
replay ends there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.facts.tree_facts import Posted, SpawnDenied, TreeFact
from sessiontree.contracts.recorded.codec import get_kind, pack
from sessiontree.contracts.reports.replay_report import ReplayDifference, ReplayReport
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import compute_session_key
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_facts
from sessiontree.runtime.replay import session_replay, tree_replay
from sessiontree.runtime.replay.session_replay import React, SessionReplay
from sessiontree.runtime.replay.tree_replay import Reported
from sessiontree.session.decide import react
from sessiontree.session.state import make_initial_state
from sessiontree.tree.decide import decide
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.protocol import TreeInstruction, TreeStimulus
from sessiontree.tree.state.state import Mail, TreeState, make_initial_tree
from sessiontree.version import RULES, VERSION

_UNEXPLAINED = "nothing recorded before it leads to this fact"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of sessions and of trees."""

    react: React = react
    """Decides for a session, and applies the facts to its state."""
    decide: Callable[[TreeState, TreeStimulus], tuple[list[TreeFact], list[TreeInstruction]]] = decide


class TreeReplay:
    """Decides on a tree again, fact by fact.

    Args:
        config: The tree's configuration.
        records: Its facts, from the first.
        rules: The two machines.
    """

    def __init__(
        self, config: TreeConfig, records: Sequence[JournalRecord], rules: Rules | None = None
    ) -> None:
        self._config = config
        self._rules = rules or Rules()
        self._records: list[JournalRecord] = []
        """By place, the record that holds a single fact."""
        self._facts: list[Any] = []
        for record in records:
            facts = _read_facts(config.tree_id, record)
            self._facts += facts
            self._records += [record] * len(facts)
        self._next = _find_next_places(self._records)
        self._tree = make_initial_tree()
        self._sessions: dict[str, SessionReplay] = {}
        self._posts: dict[str, tuple[str, Mail]] = {}
        """Everything that was posted; a session may take it after its end, when the tree has forgotten it."""
        self._reported = Reported()
        self._is_done = [False] * len(self._records)
        self._failure = ""
        """What a rule raised for the present fact."""
        self.compared = 0
        self.given = 0

    def difference(self) -> ReplayDifference | None:
        """Decide on everything; return the first difference, or None."""
        for at in range(len(self._records)):
            if not self._is_done[at]:
                self._failure = ""
                try:
                    found = (
                        self._replay_session_at(at) if self._records[at].session else self._replay_tree_at(at)
                    )
                except Exception as error:  # noqa: BLE001 - facts may hold what no rule can take
                    self._failure = repr(error)
                    found = self._describe_difference([at], None)
                if found is not None:
                    return found
        return None

    def _replay_tree_at(self, at: int) -> ReplayDifference | None:
        head = self._facts[at]
        if isinstance(head, SpawnDenied) and head.limit is None:
            self._take(at)  # what was asked for is not recorded
            return None
        ahead: list[int] = [at]
        facts = [head]
        self._look_ahead(ahead, facts, tree_replay.AHEAD)
        best: tuple[int, list[Any]] | None = None
        for stimulus in tree_replay.propose_stimuli(
            self._tree, self._reported, self._records[at].at_ms, facts
        ):
            try:
                made, _ = self._rules.decide(self._tree, stimulus)
            except Exception as error:  # noqa: BLE001 - whatever a rule raises is a finding
                self._failure = repr(error)
                continue
            self._look_ahead(ahead, facts, len(made) + 1)
            same = _count_equal(made, facts)
            if made and same == len(made):
                for fact in made:
                    evolve(self._tree, fact)
                    if isinstance(fact, Posted):
                        self._posts[fact.post_id] = fact.session, cast("Mail", fact.stimulus)
                self._mark(ahead[:same])
                return None
            if made and (best is None or same > best[0]):
                best = same, made
        return self._describe_difference(ahead, best)

    def _take(self, at: int) -> None:
        evolve(self._tree, self._facts[at])
        self._is_done[at] = True
        self.given += self._is_last_of_record(at)

    def _replay_session_at(self, at: int) -> ReplayDifference | None:
        record = self._records[at]
        session = self._find_session(record.session)
        if session is None:
            return self._describe_difference([at], None)
        if session.take_early(self._facts[at]):
            self._mark([at])
            return None
        session.use_ids(compute_session_key(self._find_nonce(record.seq), record.session))
        ahead = self._list_with_cause(at)
        facts = [self._facts[each] for each in ahead]
        best: tuple[int, list[Any]] | None = None
        mark = session.mark()
        tried = []
        for stimulus in session_replay.propose_stimuli(
            session.state, self._posts, record.cause, record.at_ms, facts
        ):
            if stimulus in tried:
                continue
            tried.append(stimulus)
            try:
                made, events = session.expect(stimulus)
            except Exception as error:  # noqa: BLE001 - whatever a rule raises is a finding
                self._failure = repr(error)
                session.return_to(mark)
                continue
            same = _count_equal(made, facts)
            if made and same == len(made):
                self._reported.usage[record.session] = session.state.usage
                for event in events:
                    self._reported.note(record.session, event)
                self._mark(ahead[:same])
                return None
            session.return_to(mark)
            if made and (best is None or same > best[0]):
                best = same, made
        return self._describe_difference(ahead, best)

    def _find_session(self, name: str) -> SessionReplay | None:
        session = self._sessions.get(name)
        if session is None:
            node = self._tree.sessions.get(name)
            if node is None:
                return None
            make = partial(make_initial_state, node.spec, self._config.limits)
            session = self._sessions[name] = SessionReplay(make, self._rules.react)
        return session

    def _find_nonce(self, seq: int) -> str:
        """Return the nonce of the tree in which a fact was decided: this one, or one it was forked from."""
        return next((fork.nonce for fork in self._config.forks if seq <= fork.seq), self._config.nonce)

    def _look_ahead(self, places: list[int], facts: list[Any], count: int) -> None:
        """Extend the places of a session's next facts, and these facts, to so many, if there are as many."""
        while len(places) < count and (at := self._next[places[-1]]) >= 0:
            places.append(at)
            facts.append(self._facts[at])

    def _list_with_cause(self, at: int) -> list[int]:
        """Return the places of a session's next facts with one cause, the first included."""
        cause = self._records[at].cause
        found = [at]
        while (at := self._next[at]) >= 0 and self._records[at].cause == cause:
            found.append(at)
        return found

    def _mark(self, places: Sequence[int]) -> None:
        for place in places:
            self._is_done[place] = True
            self.compared += self._is_last_of_record(place)

    def _is_last_of_record(self, place: int) -> bool:
        """Whether a single fact is the last that its record holds."""
        return place + 1 == len(self._records) or self._records[place + 1] is not self._records[place]

    def _describe_difference(
        self, ahead: Sequence[int], best: tuple[int, list[Any]] | None
    ) -> ReplayDifference:
        """Return the difference of the attempt that agreed with the most facts."""
        same, made = best or (0, [])
        self.compared += sum(map(self._is_last_of_record, ahead[:same]))
        session = self._records[ahead[0]].session
        if same < len(ahead):
            place = ahead[same]
            seq, found = self._records[place].seq, self._facts[place]
        else:
            seq, found = self._records[ahead[-1]].seq + 1, None
        expected = made[same] if same < len(made) else None
        return _make_difference(session, seq, expected, found, self._failure)


def _read_facts(tree_id: str, record: JournalRecord) -> tuple[Any, ...]:
    try:
        return read_facts(record.text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise JournalCorrupt(tree_id, f"fact {record.seq} can't be read: {error!r}") from error


def _find_next_places(records: Sequence[JournalRecord]) -> list[int]:
    """Return for each record the place of the next one of its session; -1 = it is the last."""
    following = [-1] * len(records)
    last: dict[str, int] = {}
    for at in range(len(records) - 1, -1, -1):
        following[at] = last.get(records[at].session, -1)
        last[records[at].session] = at
    return following


def _count_equal(made: Sequence[Any], recorded: Sequence[Any]) -> int:
    """Return how many facts at the beginning are equal."""
    count = 0
    for expected, found in zip(made, recorded, strict=False):
        if expected != found and pack(expected) != pack(found):
            break
        count += 1
    return count


def _make_difference(session: str, seq: int, expected: Any, found: Any, failure: str) -> ReplayDifference:
    wanted = None if expected is None else json.loads(pack(expected))
    present = None if found is None else json.loads(pack(found))
    kind = "" if found is None else get_kind(found)
    if wanted is None:
        reason = f"a rule failed: {failure}" if failure else _UNEXPLAINED
        return ReplayDifference(session, seq, kind, "", None, present, reason)
    if present is None:
        reason = f"the rules lead to {get_kind(expected)!r} here, and nothing is recorded"
        return ReplayDifference(session, seq, kind, "", wanted, None, reason)
    if wanted["kind"] != present["kind"]:
        reason = f"the rules lead to {get_kind(expected)!r} here"
        return ReplayDifference(session, seq, kind, "/kind", wanted["kind"], present["kind"], reason)
    field, one, other = next(_find_unequal(wanted, present, ""))
    return ReplayDifference(session, seq, kind, field, one, other, "the rules lead to another value")


def _find_unequal(one: JsonValue, other: JsonValue, path: str) -> Iterator[tuple[str, JsonValue, JsonValue]]:
    """Yield the JSON pointers at which two values differ, with both values there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys((*one, *other)):
            if one.get(name) != other.get(name):
                yield from _find_unequal(one.get(name), other.get(name), f"{path}/{_escape(name)}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            if mine != theirs:
                yield from _find_unequal(mine, theirs, f"{path}/{at}")
    else:
        yield path, one, other


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def replay_records(
    config: TreeConfig, records: Sequence[JournalRecord], damage: str | None = None
) -> ReplayReport:
    """Decide on a tree's facts again and compare; of a tree of another release, only read them.

    Raises:
        JournalCorrupt, JournalTooNew: a fact can't be read.
    """
    is_decided = (config.package_version, config.rules_number) == (VERSION, RULES)
    replay = TreeReplay(config, records)
    difference = replay.difference() if is_decided else None
    return ReplayReport(
        config.tree_id,
        config.package_version,
        is_decided,
        len(records),
        replay.compared,
        replay.given,
        damage,
        difference,
    )
