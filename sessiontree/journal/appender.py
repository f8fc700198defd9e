"""The event loop's side of writing: seqs given at once, facts checked, then left for the writer's thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial

from sessiontree.contracts.jsonable import JsonValue, dump_json
from sessiontree.journal.blobs import BlobStore
from sessiontree.journal.chain import ChainState, Flaw
from sessiontree.journal.commit import Numbered, Repair, Tail
from sessiontree.journal.erasure import erase_trees
from sessiontree.journal.reader import JournalReader, no_tree
from sessiontree.journal.record import Packed
from sessiontree.journal.segment import genesis_hash
from sessiontree.journal.writer import JournalWriter, NewFacts, NewSnapshot, NewTree

_MAX_NAME_CHARS = 1024
_MAX_PENDING_CHARS = 4 * 1024 * 1024
"""Snapshots beyond this no longer wait for facts to go with."""
_INT64 = 2**63


class Appender:
    """Takes what is to be written. All methods belong to the event loop's thread.

    Args:
        writer: Commits.
        reader: Knows what is there already.
        blobs: Loses the long texts of erased trees.
    """

    def __init__(self, writer: JournalWriter, reader: JournalReader, blobs: BlobStore) -> None:
        self._writer = writer
        self._reader = reader
        self._blobs = blobs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tails: dict[str, Tail] = {}
        self._snapshots: dict[tuple[str, str], NewSnapshot] = {}
        self._snapshot_chars = 0

    @property
    def started(self) -> bool:
        """True once there is a loop."""
        return self._loop is not None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start committing; futures belong to ``loop`` from now on.

        Raises:
            RuntimeError: it was started before.
        """
        if self._loop is not None:
            raise RuntimeError("the journal was started before")
        self._loop = loop
        self._writer.start(loop)

    async def stop(self) -> None:
        """Commit what waits and end the writer's thread."""
        self._flush_snapshots()
        await self._writer.stop()

    def close(self) -> None:
        """Close what was never started."""
        self._writer.close()

    def create_tree(self, tree_id: str, row0: Mapping[str, JsonValue]) -> asyncio.Future[None]:
        """Create a tree; see :meth:`Journal.create_tree`."""
        loop = self._appending()
        _check_name(tree_id)
        if not tree_id:
            raise ValueError("a tree's id can't be empty")
        if tree_id in self._tails or self._reader.has_tree(tree_id):
            raise ValueError(f"there is a tree {tree_id!r} already")
        text = dump_json(dict(row0))
        created_ms = time.time_ns() // 1_000_000
        genesis = genesis_hash(tree_id, created_ms, text)
        tail = self._tails[tree_id] = Tail(tree_id, genesis, 0, 0, genesis)
        done = loop.create_future()
        self._writer.put(NewTree(tail, created_ms, text, done))
        return done

    def append(
        self, tree_id: str, chunks: Sequence[tuple[str, Sequence[Packed]]]
    ) -> tuple[int, asyncio.Future[None]]:
        """Append facts; see :meth:`Journal.append`."""
        loop = self._appending()
        tail = self._tail(tree_id)
        seq = tail.last_seq
        numbered: list[Numbered] = []
        for session, facts in chunks:
            own = tuple(facts)
            _check_name(session)
            _check_facts(own)
            if own:
                numbered.append((session, seq + 1, own))
                seq += len(own)
        tail.last_seq = seq
        self._flush_snapshots()
        done = loop.create_future()
        self._writer.put(NewFacts(tail, tuple(numbered), done))
        return seq, done

    def put_snapshot(self, tree_id: str, session: str, seq: int, body: str) -> None:
        """Keep a session's state; see :meth:`Journal.put_snapshot`."""
        self._appending()
        tail = self._tail(tree_id)
        _check_name(session)
        if not 0 <= seq <= tail.last_seq:
            raise ValueError(f"tree {tree_id!r} has no record {seq}, the last is {tail.last_seq}")
        self._snapshots[tree_id, session] = NewSnapshot(tree_id, session, seq, body)
        self._snapshot_chars += len(body)
        if self._snapshot_chars > _MAX_PENDING_CHARS:
            self._flush_snapshots()

    def erase(self, tree_id: str) -> None:
        """Delete a tree; see :meth:`Journal.erase`."""
        self._writer.check()
        if tree_id not in self._tails and not self._reader.has_tree(tree_id):
            raise no_tree(self._reader.path, tree_id)
        self._snapshots = {key: item for key, item in self._snapshots.items() if key[0] != tree_id}
        self._tails.pop(tree_id, None)
        self._erase([tree_id])

    def prune(self, older_than_ms: int) -> list[str]:
        """Erase old trees; see :meth:`Journal.prune`."""
        self._writer.check()
        gone = [
            tree.tree_id
            for tree in self._reader.trees()
            if tree.written_ms < older_than_ms and tree.tree_id not in self._tails
        ]
        if gone:
            self._erase(gone)
        return gone

    def _erase(self, tree_ids: Sequence[str]) -> None:
        self._writer.do(partial(erase_trees, blobs=self._blobs, tree_ids=tree_ids))
        self._reader.forget(tree_ids)

    def _appending(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the journal was not started")
        self._writer.check()
        return self._loop

    def _flush_snapshots(self) -> None:
        for snapshot in self._snapshots.values():
            self._writer.put(snapshot)
        self._snapshots.clear()
        self._snapshot_chars = 0

    def _tail(self, tree_id: str) -> Tail:
        tail = self._tails.get(tree_id)
        if tail is None:
            progress, flaw = self._reader.end(tree_id)
            tail = self._tails[tree_id] = _tail_of(self._reader, progress, flaw)
        return tail


def _tail_of(reader: JournalReader, progress: ChainState, flaw: Flaw | None) -> Tail:
    """Return the end of a tree that another process wrote, and what must be cut off before going on."""
    tail = Tail(progress.tree_id, progress.genesis, progress.seq, progress.n, progress.head)
    index = None
    if not progress.index_good:
        index = tuple(chunk.span(n) for n, chunk in reader.chunks(progress.tree_id, progress.n))
    if flaw is not None:
        tail.last_seq = flaw.last_seq
        tail.repair = Repair(progress.n + 1, flaw.reason, flaw.shares, flaw.last_seq, index)
    elif index is not None:
        tail.repair = Repair(progress.n + 1, "the session index is damaged", (), progress.seq, index)
    return tail


def _check_name(name: str) -> None:
    if not name.isprintable() or len(name) > _MAX_NAME_CHARS:
        raise ValueError(f"the id {name[:80]!r} is too long or holds characters that can't be printed")


def _check_facts(facts: Sequence[Packed]) -> None:
    for _, at_ms, text in facts:
        is_object = text.isascii() and text[:1] == "{" and text[-1:] == "}"
        if not is_object or "\n" in text or "\r" in text:
            raise ValueError(f"a fact must be a JSON object in ASCII on one line, not {text[:80]!r}")
        if not -_INT64 <= at_ms < _INT64:
            raise ValueError(f"a fact's time must fit 64 bits, not {at_ms}")
