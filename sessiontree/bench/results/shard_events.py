"""The events of a run's trees as each node writes them: Parquet files next to the other parts of the table.

A driver on a node has the journals of its trees on its own disk. It writes their facts into the run's
directory once, at its end. A file has a row group for each tree, and its own metadata says which. So a report
finds a tree without its journal, and no fact passes through another program.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sessiontree import JournalError, JournalRecord
from sessiontree.bench.results.recorded_run import RESULTS, RecordedRun, parse_fact_kind
from sessiontree.bench.results.result_tables import SCHEMAS, record_batches
from sessiontree.bench.results.run_facts import RunFacts
from sessiontree.bench.results.written_events import TREES

TREES_PER_FILE: Final = 1_000
_QUERY: Final = (
    "SELECT sample_id, epoch, number, tree_id FROM attempts WHERE owner = ? AND tree_id IS NOT NULL "
    "ORDER BY sample_id, epoch, number"
)


def write_events(run_dir: Path, owner: str) -> int:
    """Write the events of the trees that a driver has run; return of how many trees. Blocks.

    Args:
        run_dir: The run's directory.
        owner: The driver, as the ledger knows it.

    Raises:
        OSError: the directory can't be written.
    """
    run = RecordedRun(run_dir)
    folder = run_dir / RESULTS / "events"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    trees = list(run.rows(_QUERY, owner))
    with RunFacts(run_dir) as facts:
        for first in range(0, len(trees), TREES_PER_FILE):
            _write(folder, facts, trees[first : first + TREES_PER_FILE])
    return len(trees)


def _write(folder: Path, facts: RunFacts, trees: list[tuple[Any, ...]]) -> None:
    name = secrets.token_hex(6)
    draft = folder / f".draft-{name}"
    written: list[str] = []
    try:
        with draft.open("wb") as file:
            with pq.ParquetWriter(file, SCHEMAS["events"], compression="zstd") as writer:
                for sample_id, epoch, number, tree_id in trees:
                    head = (sample_id, epoch, number, tree_id)
                    try:
                        rows = [(*head, *_build_row(each)) for each in facts.read(tree_id)]
                    except JournalError:  # it stays where it is, and the report names it
                        continue
                    if rows:
                        batches = record_batches("events", rows)
                        writer.write_table(pa.Table.from_batches(batches), row_group_size=len(rows))
                        written.append(tree_id)
                writer.add_key_value_metadata({TREES: json.dumps(written).encode()})
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / f"shard-{name}.parquet")
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _build_row(record: JournalRecord) -> tuple[Any, ...]:
    kind = parse_fact_kind(record.text)
    return record.seq, record.session, kind, record.at_ms, record.cause, record.text
