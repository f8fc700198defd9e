"""The command ``sessiontree tree --follow``: a tree as it changes, read alongside its writer.

A person sees the tree drawn, or plain lines; a program reads one JSON object per change, see
:mod:`sessiontree.cli.changes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from sessiontree.cli.changes import LiveChanges, change_text, count_files
from sessiontree.cli.live_view import LiveView
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import complete_tree_id, find_journal, find_newest_tree, find_state_dir
from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_config
from sessiontree.view.live_tree import LiveTree

READ_AT_ONCE = 512
MIN_WAIT_S, MAX_WAIT_S = 0.1, 1.0
"""How long to wait before looking again: the shortest after something new, then twice as long each time."""


def follow(
    screen: RichScreen, *, path: Path | None, state_dir: Path | None, tree_id: str | None, as_json: bool
) -> int:
    """Show one tree, the newest where none is named, until its Main has ended; return the exit code.

    At a terminal it is drawn as it is, elsewhere said in lines, with ``as_json`` reported as one JSON object
    per line and change; see :mod:`sessiontree.cli.changes` for their members.

    Raises:
        JournalError: the journal or the tree does not exist or is damaged.
        ConfigError: the workspace is not a directory, or no tree was made yet.
    """
    given = find_state_dir(path, state_dir)
    tree_id = complete_tree_id(given, tree_id)
    place = find_journal(given, tree_id)
    with Journal.open(place, read_only=True) as journal:
        named = find_newest_tree(journal, place) if tree_id is None else tree_id
        config = read_config(journal.row0(named))
        if as_json:
            asyncio.run(_tell(journal, named, lambda change: screen.raw(dump_json(change))))
        else:
            screen.line(f"tree {config.tree_id}: {config.purpose or 'no purpose given'}")
            asyncio.run(_show(screen, journal, config))
    return 0


async def read_facts(journal: Journal, tree_id: str) -> AsyncIterator[JournalRecord]:
    """Yield a tree's facts in order, then wait for more, for ever.

    Raises:
        JournalCorrupt: it is damaged; what is good was yielded.
        TreeNotFound: it was erased.
    """
    seq = 0
    wait_s = MIN_WAIT_S
    while True:
        known = next((row.last_seq for row in journal.trees() if row.tree_id == tree_id), seq)
        # The journal may have been restored from a backup while it is followed.
        if known < seq:
            raise JournalCorrupt(tree_id, f"its facts after {known:,} are gone; follow it again")
        records = journal.read(tree_id, after_seq=seq, max_n=READ_AT_ONCE)
        for record in records:
            yield record
        if records:
            seq = records[-1].seq
            wait_s = MIN_WAIT_S
            await asyncio.sleep(0)  # existing facts are read without a pause: let other tasks run
        elif known > seq:
            _explain(journal, tree_id)
        if seq >= known:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_WAIT_S)


def _explain(journal: Journal, tree_id: str) -> None:
    """Raise the error of a tree with unreadable facts."""
    verdict = journal.verify(tree_id)
    if verdict.bad_segment is not None:
        reason = f"readable up to fact {verdict.last_good_seq:,}: {verdict.reason}; restore it from a backup"
        raise JournalCorrupt(tree_id, reason)


async def _tell(journal: Journal, tree_id: str, tell: Callable[[dict[str, object]], None]) -> None:
    tree, changes = LiveTree(), LiveChanges()
    async for record in read_facts(journal, tree_id):
        tree.take(record)
        for change in changes.of(record):
            tell(change)
        if tree.is_over:
            return


async def _show(screen: RichScreen, journal: Journal, config: TreeConfig) -> None:
    async with screen.live(started_ms=config.created_at_ms) as view:
        if view is not None:
            await _draw(view, journal, config.tree_id)
            return

    def say(change: dict[str, object]) -> None:
        line = change_text(change)
        if line is not None:
            screen.line(line)

    await _tell(journal, config.tree_id, say)


async def _draw(view: LiveView, journal: Journal, tree_id: str) -> None:
    async for record in read_facts(journal, tree_id):
        view.take(record)
        count_files(view.tree, record)
        if view.tree.is_over:
            return
