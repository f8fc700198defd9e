"""The facts of a run's trees: in its journals on this disk, or as they were fetched from another node.

A tree on another node keeps its journal there. A driver on that node writes the facts of its trees into the
run's directory (``shard_events.py``). A shard on another node has no driver there: when an attempt ends, the
facts of its tree are fetched through the tree's supervisor into ``fetched/<tree id>.jsonl`` of the run's
directory: one fact a line, as a JSON array of number, session, cause, time and text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from sessiontree import JournalCorrupt, JournalRecord, JournalUnwritable, TreeNotFound
from sessiontree.api.stored.journaled_trees import StoredFacts
from sessiontree.bench.results.recorded_run import STATE
from sessiontree.contracts.values.jsonable import parse_json

if TYPE_CHECKING:
    from sessiontree.bench.results.written_events import WrittenEvents

FETCHED: Final = "fetched"


class RunFacts:
    """Reads the facts of many trees of one run. The trees may be live: what is durable is read.

    Use it as a context manager; each journal is opened once.

    Args:
        run_dir: The run's directory.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._stored = StoredFacts(run_dir / STATE)
        self._written: WrittenEvents | None = None
        """Reads what other nodes have written; loaded with PyArrow when a tree is in no journal here."""

    def __enter__(self) -> Self:
        """Open the journals that exist now.

        Raises:
            JournalError: one of them can't be read.
        """
        self._stored.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Close them."""
        self._stored.__exit__()

    def read(self, tree_id: str) -> Iterator[JournalRecord]:
        """Yield a tree's facts in order; those of a damaged tree up to the damage.

        Raises:
            TreeNotFound: no journal here holds it, and it was not fetched.
            JournalError: nothing of it can be read.
        """
        stored = self._stored.read(tree_id)
        try:
            first = next(stored, None)
        except TreeNotFound:
            file = _build_path(self._run_dir, tree_id)
            if file.is_file():
                yield from _read_fetched(file)
                return
            if self._written is None:
                from sessiontree.bench.results.written_events import WrittenEvents

                self._written = WrittenEvents(self._run_dir)
            if tree_id not in self._written:
                raise
            yield from self._written.read(tree_id)
            return
        if first is not None:
            yield first
        yield from stored


def keep_facts(run_dir: Path, tree_id: str, records: Iterable[JournalRecord]) -> None:
    """Write the facts of a tree of another node, whole or not at all. Blocks.

    Raises:
        JournalUnwritable: the file can't be written.
    """
    file = _build_path(run_dir, tree_id)
    fresh = file.with_name(f"{file.name}.new")
    try:
        file.parent.mkdir(exist_ok=True)
        with fresh.open("w", encoding="ascii") as out:
            for each in records:
                out.write(json.dumps([each.seq, each.session, each.cause, each.at_ms, each.text]) + "\n")
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    except OSError as error:
        reason = f"the facts of tree {tree_id!r} can't be kept: {error.strerror or error}"
        raise JournalUnwritable(str(file), reason) from error


def _build_path(run_dir: Path, tree_id: str) -> Path:
    return run_dir / FETCHED / f"{tree_id}.jsonl"


def _read_fetched(file: Path) -> Iterator[JournalRecord]:
    try:
        with file.open(encoding="ascii") as lines:
            for line in lines:
                yield JournalRecord(*parse_json(line))
    except (OSError, ValueError, TypeError) as error:
        raise JournalCorrupt(str(file), f"the facts that were fetched can't be read: {error}") from error
