"""Trees as their journals hold them: the state of one tree, and a summary of each tree in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sessiontree.contracts.errors import JournalCorrupt, JournalTooNew
from sessiontree.contracts.facts.session_facts import MessageReceived, ModelChanged, Opened
from sessiontree.contracts.facts.tree_config import ForkPoint, TreeConfig, TreeSummary
from sessiontree.contracts.facts.tree_facts import SessionSpawned
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.journal.claim import list_journal_dirs
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord, TreeRow
from sessiontree.journal.replay import read_config, read_fact, read_facts
from sessiontree.tree.state.evolve import evolve as evolve_tree
from sessiontree.tree.state.state import TreeState, make_initial_tree


def load_tree(journal: Journal, tree_id: str) -> tuple[TreeConfig, TreeState, int]:
    """Return a tree's configuration, its state from its durable facts, and the time of the last fact in ms.

    Raises:
        TreeNotFound: the journal does not hold the tree.
        JournalCorrupt: the tree can't be read.
    """
    state = make_initial_tree()
    last_ms = 0
    for record in journal.read_session(tree_id, ""):
        evolve_tree(state, read_fact(record.text))
        last_ms = max(last_ms, record.at_ms)
    if "main" not in state.sessions:
        raise JournalCorrupt(
            tree_id, "its first facts are missing or damaged; restore the journal from a backup"
        )
    config = read_config(journal.row0(tree_id))
    return config, state, last_ms


def read_stored_facts(journal: Journal, tree_id: str) -> tuple[TreeConfig, list[JournalRecord], str | None]:
    """Return a tree's configuration, its good facts that are durable now, and what is damaged after them.

    Raises:
        TreeNotFound: the journal does not hold the tree.
        JournalCorrupt: its configuration or first facts can't be read.
        JournalTooNew: a later release wrote it.
    """
    verdict = journal.verify(tree_id)
    config = read_config(journal.row0(tree_id))
    records = journal.read(tree_id, max_n=verdict.last_good_seq)
    return config, records, None if verdict.bad_segment is None else verdict.reason


def list_summaries(state_dir: Path, purpose: str | None = None) -> list[TreeSummary]:
    """Return the trees of all journals, oldest first; blocks while it reads each tree's own facts.

    Args:
        state_dir: A state directory, or the directory of one of its journals.
        purpose: Only trees with exactly this purpose; None = all.

    Raises:
        JournalError: a journal can't be read.
    """
    found = [each for place in list_journal_dirs(state_dir) for each in read_summaries(place, purpose)]
    return sorted(found, key=lambda each: (each.created_at_ms, each.tree_id))


def find_summary(state_dir: Path, tree_id: str) -> TreeSummary | None:
    """Return one tree of any journal of a state directory; None = none has it. Blocks; reads no other tree.

    Raises:
        JournalError: a journal that may have it can't be read.
    """
    for place in list_journal_dirs(state_dir):
        with Journal.open(place, read_only=True) as journal:
            for row in journal.trees():
                if row.tree_id == tree_id:
                    said = None if row.row0 is None else str(row.row0.get("purpose", ""))
                    return _summarize(journal, row, said)
    return None


def read_main_model(place: Path, tree_id: str) -> tuple[str, str]:
    """Return Main's agent and the own name of its last model in one journal; empty = it had none. Blocks.

    Raises:
        JournalError: the journal can't be read, or does not hold the tree.
    """
    with Journal.open(place, read_only=True) as journal:
        agent, model = read_config(journal.row0(tree_id)).agents[0].name, ""
        for record in journal.read_session(tree_id, MAIN):
            for fact in read_facts(record.text):
                if isinstance(fact, Opened | ModelChanged):
                    model = fact.model
    return agent, model


def read_summaries(place: Path, purpose: str | None = None) -> Iterator[TreeSummary]:
    """Yield the trees of the journal in one directory, oldest first; as :func:`list_summaries` otherwise."""
    with Journal.open(place, read_only=True) as journal:
        for row in journal.trees():
            said = None if row.row0 is None else str(row.row0.get("purpose", ""))
            if purpose is None or said == purpose:
                yield _summarize(journal, row, said)


def _summarize(journal: Journal, row: TreeRow, purpose: str | None) -> TreeSummary:
    outcome, sessions, live, cost_usd = None, 0, 0, 0.0
    fork: ForkPoint | None = None
    try:
        config, state, _ = load_tree(journal, row.tree_id)
    except (JournalCorrupt, JournalTooNew):
        pass  # a tree that can't be read is listed too
    else:
        outcome, sessions, live = state.sessions[MAIN].status, state.total, state.live
        cost_usd = sum(session.usage.cost_usd for session in state.sessions.values())
        fork = config.forks[-1] if config.forks else None
    return TreeSummary(
        row.tree_id,
        purpose,
        None if row.row0 is None else str(row.row0.get("workspace")),
        row.created_ms,
        row.written_ms,
        row.last_seq,
        outcome,
        sessions,
        live,
        None if fork is None else fork.tree_id,
        None if fork is None else fork.seq,
        "" if outcome is None else _find_first_task(journal, row.tree_id),
        cost_usd,
    )


_FIRST_FACTS = 5
"""Among so many first facts of Main, or of the tree, is the task that it was given."""
_TASK_CHARS = 200


def _find_first_task(journal: Journal, tree_id: str) -> str:
    for record in journal.read_session(tree_id, MAIN, max_n=_FIRST_FACTS):
        for fact in read_facts(record.text):
            if isinstance(fact, MessageReceived):
                text = fact.message.text if fact.message.origin == "user" else ""
                if text:
                    return text[:_TASK_CHARS]
    for record in journal.read_session(tree_id, "", max_n=_FIRST_FACTS):
        spawned = read_fact(record.text)
        if isinstance(spawned, SessionSpawned) and spawned.spec.parent == MAIN:
            return spawned.spec.task[:_TASK_CHARS]
    return ""
