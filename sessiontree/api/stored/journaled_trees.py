"""Work on the journals of a state directory: forks, replay, erasure and pruning of trees; reading facts.

All functions but :func:`erase_tree` and :func:`count_in_memory` block; none of them needs a runtime.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sessiontree.api.options.options import make_nonce, make_tree_id
from sessiontree.contracts.errors import ConfigError, JournalError, TreeNotFound
from sessiontree.contracts.facts.tree_config import TreeSummary
from sessiontree.contracts.reports.dry_run import DryRun
from sessiontree.contracts.reports.replay_report import ReplayReport
from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.contracts.tools.thread_calls import claim_in_thread
from sessiontree.contracts.values.memory import Selection
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.claim import (
    JournalClaim,
    holds_tree,
    list_journal_dirs,
    locate_journal,
    state_dir_of_journal,
)
from sessiontree.journal.journal import Journal
from sessiontree.journal.place import JournalPlace
from sessiontree.journal.reader import make_no_tree_error
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_config
from sessiontree.runtime.replay.dry_run import forecast
from sessiontree.runtime.replay.replay_check import replay_records
from sessiontree.runtime.replay.stored_trees import read_stored_facts, read_summaries
from sessiontree.runtime.replay.tree_fork import Identity, fork_facts
from sessiontree.runtime.scheduling.settings import COPIES
from sessiontree.workspace.removal import remove_tree

if TYPE_CHECKING:
    from sessiontree.memory.store import LanceMemoryStore

_ALL = 2**31
_PAGE = 1_000


def replay_tree(state_dir: Path, tree_id: str) -> ReplayReport:
    """Decide on a tree's recorded facts again and compare; the tree may be live, and is never changed.

    Args:
        state_dir: The state directory, or the directory of one of its journals.
        tree_id: The tree.

    Raises:
        TreeNotFound, JournalError: the tree does not exist or can't be read.
    """
    with Journal.open(locate_journal(state_dir, tree_id), read_only=True) as journal:
        config, records, damage = read_stored_facts(journal, tree_id)
    return replay_records(config, records, damage)


class StoredFacts:
    """Reads the facts of many stored trees of one state directory, from all its journals.

    The trees may be live: what is durable is read. Use it as a context manager; each journal is opened once.

    Args:
        state_dir: The state directory, or the directory of one of its journals.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._journals: list[Journal] = []

    def __enter__(self) -> Self:
        """Open the journals that exist now.

        Raises:
            JournalError: one of them can't be read.
        """
        try:
            for place in list_journal_dirs(self._state_dir):
                self._journals.append(Journal.open(place, read_only=True))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close them."""
        while self._journals:
            self._journals.pop().release()

    def read(self, tree_id: str) -> Iterator[JournalRecord]:
        """Yield a tree's facts in order, page by page; those of a damaged tree up to the damage.

        Raises:
            TreeNotFound: no journal here holds it.
            JournalError: nothing of it can be read.
        """
        seq = 0
        while page := self._page(tree_id, seq):
            yield from page
            if len(page) < _PAGE:
                return
            seq = page[-1].seq

    def _page(self, tree_id: str, after_seq: int) -> list[JournalRecord]:
        for index, journal in enumerate(self._journals):
            try:
                page = journal.read(tree_id, after_seq=after_seq, max_n=_PAGE)
            except TreeNotFound:
                continue
            if index:  # neighbours in a list of trees are often of one journal
                self._journals.insert(0, self._journals.pop(index))
            return page
        raise make_no_tree_error(str(JournalPlace(self._state_dir).database), tree_id)


@dataclass(frozen=True, slots=True)
class ForkSummary:
    """A stored tree that was made of the first facts of another one."""

    tree_id: str
    forked_from: str
    forked_at: int
    """Number of the last fact that both share."""
    records: int
    """Number of its facts, with those that the fork added."""


def fork_tree(
    state_dir: Path, tree_id: str, at: int | None, replace: Mapping[str, str] | None = None
) -> ForkSummary:
    """Write a new tree that shares the first facts of another one, whole or not at all.

    The other tree may be live, and does not change. The new one is in the first journal that no program
    writes.

    Args:
        state_dir: The state directory, or the directory of one of its journals.
        tree_id: The other tree.
        at: Number of the last shared fact; None = the newest.
        replace: New tasks of children that have reported, by session id.

    Raises:
        TreeNotFound: no journal holds the tree.
        ConfigError: no tree can be forked at this fact, or a child can't be replaced.
        JournalError: the tree can't be read, or no journal can be written.
    """
    with Journal.open(locate_journal(state_dir, tree_id), read_only=True) as journal:
        config, records, _ = read_stored_facts(journal, tree_id)
    new = Identity(make_tree_id(), make_nonce(), _read_clock_ms())
    manifest, own = fork_facts(config, records, at, new, replace)
    claim = JournalClaim.take(state_dir_of_journal(state_dir))
    try:
        with Journal.open(claim.directory) as journal:
            journal.import_tree(manifest, own)
    finally:
        claim.release()
    return ForkSummary(new.tree_id, tree_id, len(records) if at is None else at, len(own))


def dry_resume(state_dir: Path, tree_id: str, prices: Mapping[str, ModelPrice] | None = None) -> DryRun:
    """Return what a resume of a stored tree would do at once; nothing is written or started.

    Args:
        state_dir: The state directory, or the directory of one of its journals.
        tree_id: The tree.
        prices: Prices of models' tokens, by agent; those of other agents are not known.

    Raises:
        TreeNotFound, JournalError: the tree does not exist or can't be read.
    """
    with Journal.open(locate_journal(state_dir, tree_id), read_only=True) as journal:
        config, records, _ = read_stored_facts(journal, tree_id)
    return forecast(config, records, at_ms=_read_clock_ms(), prices=prices or {})


def dry_fork(
    state_dir: Path,
    tree_id: str,
    at: int | None,
    prices: Mapping[str, ModelPrice] | None = None,
    replace: Mapping[str, str] | None = None,
) -> DryRun:
    """Return what a fork of a stored tree would do at once, after its resume; as :func:`dry_resume`.

    ``at`` and ``replace`` are as for :func:`fork_tree`.

    Raises:
        TreeNotFound, JournalError: the tree does not exist or can't be read.
        ConfigError: no tree can be forked at this fact.
    """
    with Journal.open(locate_journal(state_dir, tree_id), read_only=True) as journal:
        config, records, _ = read_stored_facts(journal, tree_id)
    new = Identity(make_tree_id(), make_nonce(), _read_clock_ms())
    manifest, own = fork_facts(config, records, at, new, replace)
    shared = len(records) if at is None else at
    return forecast(read_config(manifest.row0), own, at_ms=new.at_ms, prices=prices or {}, shared=shared)


def _read_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def explain_not_found(state_dir: Path, tree_id: str, error: TreeNotFound) -> TreeNotFound:
    """Return the error for a tree that a runtime does not find: the given one, unless another journal has it.

    Args:
        state_dir: The runtime's state directory.
        tree_id: The tree.
        error: What the runtime raised.
    """
    try:
        place = locate_journal(state_dir, tree_id)
        if not holds_tree(place, tree_id):
            return error
    except JournalError:
        return error
    again = f"Runtime(state_dir, tree_id={tree_id!r}), or with several shards"
    return TreeNotFound(
        str(JournalPlace(place).database),
        f"it holds tree {tree_id!r}, but this runtime writes another journal; resume it with {again}",
    )


async def erase_tree(state_dir: Path, tree_id: str, memory_uri: str | None) -> int:
    """Erase a tree that no program runs: its facts, its blobs, and its sessions' records in memory.

    Memory is erased first: if it can't be written, the tree stays and can be erased later.

    Args:
        state_dir: The state directory, or the directory of one of its journals.
        tree_id: The tree.
        memory_uri: Directory or address of the memory store; None leaves memory as it is.

    Returns:
        How many records of memory were erased.

    Raises:
        TreeNotFound: no journal there holds the tree; nothing was erased.
        JournalLocked: a program writes the journal that holds the tree; nothing was erased.
        MemoryFailed: a runtime writes memory; nothing was erased.
        MemoryFailed, JournalError: memory, or the journal, can't be written.
    """
    await asyncio.to_thread(count_facts, state_dir, tree_id)  # before a claim makes files in an empty place
    claim = await claim_in_thread(partial(JournalClaim.take, state_dir, tree_id), JournalClaim.release)
    try:
        forgotten = 0 if memory_uri is None else await _act_on_memory(memory_uri, partial(_forget, tree_id))
        await asyncio.to_thread(_erase, claim, (tree_id,))
    finally:
        claim.release()
    return forgotten


def count_facts(state_dir: Path, tree_id: str) -> int:
    """Return how many facts a tree has, including those of a damaged end.

    Raises:
        TreeNotFound, JournalError: no journal holds the tree, or it can't be read.
    """
    place = locate_journal(state_dir, tree_id)
    with Journal.open(place, read_only=True) as journal:
        found = [row.last_seq for row in journal.trees() if row.tree_id == tree_id]
    if not found:
        raise make_no_tree_error(str(JournalPlace(place).database), tree_id)
    return found[0]


async def count_in_memory(memory_uri: str, tree_id: str) -> int:
    """Return how many records the sessions of a tree stored in memory; 0 if the memory does not exist.

    Raises:
        MemoryFailed: a runtime writes memory.
        MemoryFailed: it can't be read.
    """
    return await _act_on_memory(memory_uri, partial(_count, tree_id))


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """Which trees pruning erases."""

    trees: tuple[TreeSummary, ...]
    """Oldest first."""
    journals: dict[str, Path]
    """Directory of the journal of each of them, by id."""
    in_use: tuple[Path, ...]
    """Journals that programs write now; none of their trees is erased."""


def plan_prune(
    state_dir: Path,
    *,
    older_than_s: float | None = None,
    keep: int | None = None,
    max_bytes: int | None = None,
    unfinished: bool = True,
    now_s: Callable[[], float] = time.time,
) -> PrunePlan:
    """Choose the trees to erase. A tree must meet every condition that is given.

    Args:
        state_dir: The state directory, or the directory of one of its journals.
        older_than_s: Only trees whose newest fact is older than this, in seconds.
        keep: Leave out this many of the most recently written trees.
        max_bytes: Only the least recently written trees, until the facts of all that are left, those of live
            programs included, take at most so many bytes.
        unfinished: Also trees that were left open, which could be resumed, and damaged ones.
        now_s: The clock, in seconds since 1970.

    Raises:
        ConfigError: neither age, number nor size is given, or one is out of bounds.
        JournalError: a journal can't be read or locked.
    """
    if older_than_s is None and keep is None and max_bytes is None:
        raise ConfigError("say what to prune: give older_than_s, keep, max_bytes, or several of them")
    if older_than_s is not None and not _is_number(older_than_s):
        raise ConfigError(f"older_than_s is {older_than_s!r}; give a number of seconds from 0 on")
    if keep is not None and (not isinstance(keep, int) or not _is_number(keep)):
        raise ConfigError(f"keep is {keep!r}; give a whole number of trees from 0 on")
    if max_bytes is not None and (not isinstance(max_bytes, int) or not _is_number(max_bytes)):
        raise ConfigError(f"max_bytes is {max_bytes!r}; give a whole number of bytes from 0 on")
    found: list[tuple[TreeSummary, Path, bool]] = []
    sizes: dict[str, int] = {}
    in_use = []
    for place in _find_journals(state_dir):
        claim = JournalClaim.take_journal(place)
        if claim is None:
            in_use.append(place)
        else:
            claim.release()
        found += [(tree, place, claim is None) for tree in read_summaries(place)]
        if max_bytes is not None:
            with Journal.open(place, read_only=True) as journal:
                sizes |= journal.count_tree_bytes()
    found.sort(key=lambda each: each[0].written_at_ms, reverse=True)
    before_ms = None if older_than_s is None else (now_s() - older_than_s) * 1000
    chosen = [
        (tree, place)
        for tree, place, is_live in found[keep or 0 :]
        if not is_live
        and (unfinished or (tree.outcome is not None and tree.outcome.is_final))
        and (before_ms is None or tree.written_at_ms < before_ms)
    ]
    chosen.reverse()
    if max_bytes is not None:
        chosen = _select_oldest(chosen, sizes, max_bytes)
    journals = {tree.tree_id: place for tree, place in chosen}
    return PrunePlan(tuple(tree for tree, _ in chosen), journals, tuple(in_use))


def _select_oldest(
    chosen: list[tuple[TreeSummary, Path]], sizes: Mapping[str, int], max_bytes: int
) -> list[tuple[TreeSummary, Path]]:
    """Return the first of these trees, oldest first, without which all trees take no more than a size."""
    left = sum(sizes.values())
    for index, (tree, _) in enumerate(chosen):
        if left <= max_bytes:
            return chosen[:index]
        left -= sizes.get(tree.tree_id, 0)
    return chosen


def prune(plan: PrunePlan) -> list[str]:
    """Erase the trees of a plan from their journals and return their ids; memory stays as it is.

    A tree stays if it was written, or if a program took its journal, since the plan was made.

    Raises:
        JournalError: a journal can't be written; trees of other journals may be gone.
    """
    erased: list[str] = []
    for place in dict.fromkeys(plan.journals.values()):
        claim = JournalClaim.take_journal(place)
        if claim is None:
            continue
        try:
            with Journal.open(place, read_only=True) as journal:
                written = {row.tree_id: row.written_ms for row in journal.trees()}
            ids = [tree.tree_id for tree in plan.trees if written.get(tree.tree_id) == tree.written_at_ms]
            ids = [tree_id for tree_id in ids if plan.journals[tree_id] == place]
            if ids:
                _erase(claim, ids)
            erased += ids
        finally:
            claim.release()
    return erased


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _find_journals(state_dir: Path) -> tuple[Path, ...]:
    places = list_journal_dirs(state_dir)
    if not places:
        Journal.open(state_dir, read_only=True).release()  # raises the error of an unusable directory
    return places


def _erase(claim: JournalClaim, tree_ids: Sequence[str]) -> None:
    with Journal.open(claim.directory) as journal:
        journal.erase(*tree_ids)
        journal.compact()
    for tree_id in tree_ids:
        JournalPlace(claim.directory).trace_marks(tree_id).unlink(missing_ok=True)
        copies = claim.directory / COPIES / tree_id
        if copies.is_dir():
            remove_tree(copies)


async def _act_on_memory(uri: str, act: Callable[[LanceMemoryStore], Awaitable[int]]) -> int:
    """Return the count of an action on a memory store, 0 if it does not exist; it is locked meanwhile."""
    from sessiontree.memory.reindex import open_as_stored, read_stored_embedder

    if await read_stored_embedder(uri) is None:
        return 0
    store, _ = await open_as_stored(uri, lock=True)
    async with store:
        return await act(store)


async def _forget(tree_id: str, store: LanceMemoryStore) -> int:
    return len(await store.forget_tree(tree_id))


async def _count(tree_id: str, store: LanceMemoryStore) -> int:
    return len(await store.select(Selection(tree_id=tree_id), None, _ALL))
