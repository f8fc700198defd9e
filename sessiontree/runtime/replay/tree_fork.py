"""Forks: the facts of a new tree, made of the first facts of another one. Reads and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sessiontree.contracts.errors import ConfigError, describe_error
from sessiontree.contracts.facts.rewind import ReplacedChild, Rewind
from sessiontree.contracts.facts.stimuli import ApprovalAsked, Forked, TreeEvent
from sessiontree.contracts.facts.tree_config import ForkPoint, TreeConfig
from sessiontree.contracts.facts.tree_facts import TreeFact
from sessiontree.contracts.recorded.codec import pack, to_wire
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import MAIN, SessionIds, compute_session_key
from sessiontree.journal.export import Manifest
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.journal.replay import read_fact, read_facts, replay_session
from sessiontree.runtime.replay.replaced_children import (
    check_replaced,
    compute_rewind,
    find_reports,
    list_replaced,
    make_keys,
)
from sessiontree.runtime.rights.precedents import find_precedent
from sessiontree.session.decide import react as react_session
from sessiontree.session.instructions import ToTree
from sessiontree.session.turns import keep_valid_instructions
from sessiontree.tree.decide import react as react_tree
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.protocol import ForkAsked, FromSession, RefuseSpawn, TreeInstruction, TreeStimulus
from sessiontree.tree.state.state import TreeState, make_initial_tree

CAUSE = "forked"
"""Cause of the facts that a fork adds."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a fork a tree of its own."""

    tree_id: str
    nonce: str
    at_ms: int
    """When it is made, in milliseconds since 1970."""


def fork_facts(
    config: TreeConfig,
    records: Sequence[JournalRecord],
    at: int | None,
    new: Identity,
    replace_tasks: Mapping[str, str] | None = None,
) -> tuple[Manifest, list[JournalRecord]]:
    """Return the new tree: the first facts of the old one, and what the machines decide about the fork.

    Args:
        config: Configuration of the old tree.
        records: Its good facts, from the first.
        at: Number of the last fact that the new tree shares; None = all.
        new: Identity of the new tree.
        replace_tasks: New tasks of children that have reported, by session id: each is spawned again, and its
            parent goes back to before its report.

    Raises:
        ConfigError: no tree can be forked at this fact, which says where it can; or a child can't be
            replaced.
        JournalError: a fact can't be read.
    """
    prefix = records[: find_fork_point(config.tree_id, records, at)]
    state = make_initial_tree()
    texts: dict[str, list[str]] = {}
    tree_facts: list[TreeFact] = []
    for record in prefix:
        if record.session:
            texts.setdefault(record.session, []).append(record.text)
        else:
            evolve(state, read_fact(record.text))
            tree_facts += read_facts(record.text) if replace_tasks else ()
    if MAIN not in state.sessions:
        raise ConfigError(f"tree {config.tree_id!r} has no Main session up to fact {len(prefix)}; fork later")
    if not state.sessions[MAIN].is_live:
        ended = next(record.seq for record in prefix if record.ends(MAIN))
        raise ConfigError(
            f"tree {config.tree_id!r} had ended by fact {len(prefix)}, so nothing could go on; fork at a "
            f"fact before {ended}"
        )
    last_ms = max(record.at_ms for record in prefix)
    own = replace(
        config,
        tree_id=new.tree_id,
        nonce=new.nonce,
        created_at_ms=new.at_ms,
        forks=(*config.forks, ForkPoint(config.tree_id, len(prefix), config.nonce)),
    )
    draft = _ForkDraft(own, state, list(prefix), max(new.at_ms, last_ms))
    if replace_tasks:
        check_replaced(state, replace_tasks)
        draft.replace_children(replace_tasks, find_reports(tree_facts, replace_tasks), texts)
    draft.fork(last_ms, texts)
    return Manifest(new.tree_id, new.at_ms, to_wire(own)), draft.records


class _ForkDraft:
    """Collects the facts of a fork."""

    def __init__(
        self, config: TreeConfig, state: TreeState, records: list[JournalRecord], at_ms: int
    ) -> None:
        self._config = config
        self._state = state
        self._at_ms = at_ms
        self.records = records
        self._replaced: tuple[ReplacedChild, ...] = ()
        self._rewinds: dict[str, Rewind] = {}
        """Parents of replaced children, to where they go back."""

    def replace_children(
        self, tasks: Mapping[str, str], reports: Mapping[str, str], texts: Mapping[str, Sequence[str]]
    ) -> None:
        """Note which children are replaced, and where their parents go back to; before :meth:`fork`.

        Raises:
            ConfigError: a parent can't go back there, or no child can be started.
        """
        keys: dict[str, str] = {}
        below: dict[str, list[str]] = {}
        for name in tasks:
            below.setdefault(self._state.sessions[name].spec.parent or MAIN, []).append(name)
        for parent, names in below.items():
            key = compute_session_key(self._config.nonce, parent)
            own = make_keys(SessionIds(parent, key), names)
            keys |= own
            wanted = {post: child for post, child in reports.items() if child in own}
            if wanted:
                held = texts.get(parent, [])
                session = replay_session(self._state.sessions[parent].spec, self._config.limits, held, key)
                facts = [fact for text in held for fact in read_facts(text)]
                awaits = self._list_awaits(parent, held)
                self._rewinds[parent] = compute_rewind(parent, session, facts, wanted, own, awaits)
        self._replaced = list_replaced(tasks, keys)

    def fork(self, last_ms: int, texts: dict[str, list[str]]) -> None:
        """Add what follows from the fork."""
        shift_ms = self._at_ms - last_ms
        told_by_tree = self._react(ForkAsked(self._at_ms, self._config, shift_ms, self._replaced))
        for each in told_by_tree:
            if isinstance(each, RefuseSpawn):
                raise ConfigError(f"replace: {describe_error(each.error)}")
        limits = self._config.limits
        for name, own in texts.items():
            node = self._state.sessions.get(name)
            if node is None or not node.is_live:
                continue
            key = compute_session_key(self._config.nonce, name)
            session = replay_session(node.spec, limits, own, key)
            awaits = self._list_awaits(name, own) if session.awaited or session.unwanted else ()
            rewind = self._rewinds.get(name)
            facts, told = react_session(session, Forked(self._at_ms, shift_ms, rewind, awaits))
            self._add(name, [pack(fact) for fact in facts])
            for each in keep_valid_instructions(told, session):
                if isinstance(each, ToTree):
                    self._react(self._from_session(name, each.event))

    def _list_awaits(self, name: str, texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return the ids by which children report to programs of a session, with the calls that wait."""
        key = compute_session_key(self._config.forks[-1].nonce, name)
        state = replay_session(self._state.sessions[name].spec, self._config.limits, texts, key)
        return (*state.awaited.items(), *((call_id, "") for call_id in state.unwanted))

    def _from_session(self, name: str, event: TreeEvent) -> FromSession:
        quiet = not self._state.owed_to.list_members(name)
        # A copy of a workspace stays with the other tree, so its programs are judged as those of the tree's.
        workspace = self._config.workspace
        precedent = (
            find_precedent(self._config, event.call, workspace) if isinstance(event, ApprovalAsked) else None
        )
        return FromSession(self._at_ms, name, event, quiet, precedent)

    def _react(self, stimulus: TreeStimulus) -> list[TreeInstruction]:
        facts, told = react_tree(self._state, stimulus)
        self._add("", [pack(fact) for fact in facts])
        return told

    def _add(self, session: str, texts: Sequence[str]) -> None:
        for text in texts:
            self.records.append(JournalRecord(len(self.records) + 1, session, CAUSE, self._at_ms, text))


def find_fork_point(tree_id: str, records: Sequence[JournalRecord], at: int | None) -> int:
    """Return the number of the last fact that a fork shares.

    Raises:
        ConfigError: the tree has no such fact, or it was written together with the fact after it.
    """
    last = len(records)
    if at is None:
        return last
    if not isinstance(at, int) or isinstance(at, bool) or not 1 <= at <= last:
        raise ConfigError(
            f"tree {tree_id!r} can't be forked at fact {at!r}: it has the facts 1 to {last}; give the "
            "number of one, or None for the last"
        )
    begin, end = group_around(records, at)
    if at != end:
        before = f"{begin - 1} or " if begin > 1 else ""
        raise ConfigError(
            f"tree {tree_id!r} can't be forked at fact {at}: it belongs together with the facts {begin} to "
            f"{end}, which follow from one event; fork at {before}{end}"
        )
    return at


def group_around(records: Sequence[JournalRecord], at: int) -> tuple[int, int]:
    """Return the first and the last number of the facts that belong together with one.

    A session's facts come first, then the tree's facts that follow from them, with the cause of the first.
    The numbers that are left out between the groups may be more than the commits were, never fewer.
    """
    begin = 1
    for number, record in enumerate(records, 1):
        if number > 1 and _is_new_group(records[begin - 1 : number - 1], record):
            if number > at:
                return begin, number - 1
            begin = number
    return begin, len(records)


def _is_new_group(group: Sequence[JournalRecord], record: JournalRecord) -> bool:
    """Whether a fact belongs to another group than the facts before it."""
    last = group[-1]
    causes = {each.cause for each in group if each.session}
    if record.session:
        # An intent that was committed with the decision on its request has the cause of the commit.
        is_committed_with = read_kind(record.text) == "call_intended" and record.cause in causes
        return last.session == "" or (record.session != last.session and not is_committed_with)
    if last.session:
        return record.cause not in causes
    return record.cause != last.cause or (record.at_ms != last.at_ms and record.cause not in causes)
