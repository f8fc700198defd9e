"""Reads the events of a run's trees that other nodes have written, see ``shard_events.py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from sessiontree import JournalCorrupt, JournalRecord
from sessiontree.bench.results.recorded_run import RESULTS
from sessiontree.contracts.values.jsonable import parse_json

TREES: Final = b"sessiontree.trees"
"""Names a file's metadata: the ids of its trees in the order of their row groups, as JSON."""
_NAMES: Final = "shard-*.parquet"
_MEMBERS: Final = ["seq", "session", "cause", "at_ms", "text"]


class WrittenEvents:
    """Reads the events that nodes have written.

    Args:
        run_dir: The run's directory.
    """

    def __init__(self, run_dir: Path) -> None:
        self._places: dict[str, tuple[Path, int]] = {}
        for file in sorted((run_dir / RESULTS / "events").glob(_NAMES)):
            with suppress(OSError, ValueError, KeyError, TypeError):  # a file of somebody else's
                trees = parse_json(pq.read_metadata(file).metadata[TREES])
                self._places |= {tree_id: (file, number) for number, tree_id in enumerate(trees)}

    def __contains__(self, tree_id: object) -> bool:
        """Whether a node has written the tree."""
        return tree_id in self._places

    def read(self, tree_id: str) -> Iterator[JournalRecord]:
        """Yield a tree's facts in order.

        Raises:
            JournalCorrupt: the file can't be read.
        """
        file, number = self._places[tree_id]
        try:
            rows = pq.ParquetFile(file).read_row_group(number, _MEMBERS).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise JournalCorrupt(
                str(file), f"the facts of tree {tree_id!r} can't be read: {error}"
            ) from error
        for row in rows:
            yield JournalRecord(*(row[name] for name in _MEMBERS))
