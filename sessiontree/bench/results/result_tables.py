"""The tables of a run's results: their columns, their rows, and the Parquet files that hold them.

A part of a table holds the rows of a fixed range of samples, in the suite's order. So a part never repeats
rows of another one, even where an interrupted write left old parts next to new ones. Each part is written
under a temporary name and renamed once it is on the disk.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sessiontree import JournalError
from sessiontree.bench.results.recorded_run import (
    AttemptRecord,
    RecordedRun,
    parse_fact_kind,
    parse_scores,
    sum_usage_by_model,
)
from sessiontree.bench.results.run_facts import RunFacts
from sessiontree.bench.results.written_events import WrittenEvents
from sessiontree.contracts.values.quick_dataclass import dataclass

SAMPLES_PER_PART: Final = 1_000
"""How many samples, with all their epochs, a part covers."""
ROWS_PER_GROUP: Final = 4_096
"""Most rows that are in memory while a part is written."""
_NAME: Final = "part-{:06d}.parquet"
_NAMES: Final = "part-*.parquet"
_DRAFT: Final = ".draft-"
_TEXT = pa.dictionary(pa.int32(), pa.string())
"""Text with few different values."""

SCORE = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("passed", pa.bool_()),
        pa.field("answer", pa.string()),
        pa.field("explanation", pa.string()),
        pa.field("metadata", pa.string()),  # JSON
    ]
)


def _build_schema(*columns: tuple[str, Any]) -> Any:
    return pa.schema(
        [pa.field(name.rstrip("!"), kind, nullable=not name.endswith("!")) for name, kind in columns]
    )


SCHEMAS: Final[dict[str, Any]] = {
    "samples": _build_schema(
        ("sample_id!", pa.string()),
        ("epoch!", pa.int32()),
        ("input", pa.string()),
        ("target", pa.string()),
        ("metadata", pa.string()),
        ("state!", _TEXT),
        ("attempts!", pa.int32()),
        ("status", _TEXT),
        ("passed", pa.bool_()),
        ("value", pa.float64()),
        ("scores", pa.list_(SCORE)),
        ("output", pa.string()),
        ("error_kind", _TEXT),
        ("error", pa.string()),
        ("tree_id", pa.string()),
        ("lease_id", pa.string()),
        ("started_at_ms", pa.int64()),
        ("committed_at_ms", pa.int64()),
        ("wall_ms", pa.int64()),
        ("input_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("cost_usd", pa.float64()),
        ("turns", pa.int64()),
        ("tool_calls", pa.int64()),
        ("sessions", pa.int64()),
        ("revision", pa.int32()),
        ("made_by", _TEXT),
        ("provenance", pa.int32()),
        ("solver_provenance", pa.int32()),
    ),
    "history": _build_schema(
        ("sample_id!", pa.string()),
        ("epoch!", pa.int32()),
        ("revision!", pa.int32()),
        ("status!", _TEXT),
        ("passed", pa.bool_()),
        ("value", pa.float64()),
        ("scores", pa.list_(SCORE)),
        ("tree_id", pa.string()),
        ("made_by!", _TEXT),
        ("provenance", pa.int32()),
        ("committed_at_ms!", pa.int64()),
        ("superseded_at_ms!", pa.int64()),
        ("reason!", pa.string()),
    ),
    "commands": _build_schema(
        ("number!", pa.int32()),
        ("kind!", _TEXT),
        ("started_at_ms!", pa.int64()),
        ("worked_ms!", pa.int64()),
        ("is_over!", pa.bool_()),
        ("provenance", pa.int32()),
        ("facts!", pa.string()),
        ("circumstances!", pa.string()),
        ("accepted!", pa.string()),
    ),
    "sessions": _build_schema(
        ("sample_id!", pa.string()),
        ("epoch!", pa.int32()),
        ("tree_id!", pa.string()),
        ("session_id!", pa.string()),
        ("kind", _TEXT),
        ("parent", pa.string()),
        ("agent", _TEXT),
        ("model", _TEXT),
        ("status", _TEXT),
        ("input_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("cost_usd", pa.float64()),
        ("turns", pa.int64()),
        ("tool_calls", pa.int64()),
    ),
    "events": _build_schema(
        ("sample_id!", pa.string()),
        ("epoch!", pa.int32()),
        ("attempt!", pa.int32()),
        ("tree_id!", pa.string()),
        ("seq!", pa.int64()),
        ("session!", pa.string()),
        ("kind!", _TEXT),
        ("at_ms!", pa.int64()),
        ("cause!", pa.string()),
        ("text!", pa.string()),
    ),
    "usage": _build_schema(
        ("sample_id!", pa.string()),
        ("epoch!", pa.int32()),
        ("model!", _TEXT),
        ("scored!", pa.bool_()),
        ("trees!", pa.int64()),
        ("sessions!", pa.int64()),
        ("input_tokens!", pa.int64()),
        ("output_tokens!", pa.int64()),
        ("cost_usd!", pa.float64()),
        ("turns!", pa.int64()),
        ("tool_calls!", pa.int64()),
    ),
}
"""The columns of each table. A name's end is its unit; ``_at_ms`` is milliseconds since 1970."""

_SAMPLES = """
SELECT s.sample_id, s.epoch, s.state, s.attempts, x.status, x.passed, x.scores, x.output, a.error_kind,
    a.error, x.tree_id, x.lease_id, a.started_at_ms, x.committed_at_ms, x.wall_ms, x.input_tokens,
    x.output_tokens, x.cost_usd, x.turns, x.tool_calls, x.sessions, x.revision, x.made_by, x.provenance,
    a.provenance, d.input, d.target, d.metadata
FROM samples s LEFT JOIN scores x USING (sample_id, epoch) LEFT JOIN attempts a ON a.lease_id = x.lease_id
LEFT JOIN sample_data d ON d.sample_id = s.sample_id
WHERE s.position BETWEEN ? AND ? ORDER BY s.position, s.epoch
"""
_HISTORY = """
SELECT h.sample_id, h.epoch, h.revision, h.status, h.passed, h.scores, h.tree_id, h.made_by, h.provenance,
    h.committed_at_ms, h.superseded_at_ms, h.reason
FROM samples s JOIN past_scores h USING (sample_id, epoch)
WHERE s.position BETWEEN ? AND ? ORDER BY s.position, s.epoch, h.revision
"""
_COMMANDS = """
SELECT c.number, c.kind, c.started_at_ms, c.worked_ms, c.ended_at_ms IS NOT NULL, c.provenance,
    coalesce(p.facts, '{}'), c.circumstances, c.accepted
FROM commands c LEFT JOIN provenance p ON p.number = c.provenance ORDER BY c.number
"""
_SESSIONS = """
SELECT t.sample_id, t.epoch, t.tree_id, t.session_id, t.kind, t.parent, t.agent, t.model, t.status,
    t.input_tokens, t.output_tokens, t.cost_usd, t.turns, t.tool_calls
FROM samples s JOIN scores x USING (sample_id, epoch) JOIN sessions t ON t.tree_id = x.tree_id
WHERE s.position BETWEEN ? AND ? ORDER BY s.position, s.epoch, t.session_id
"""
_USAGE = """
SELECT t.sample_id, t.epoch, coalesce(t.model, ''), count(DISTINCT t.tree_id), count(*), sum(t.input_tokens),
    sum(t.output_tokens), sum(t.cost_usd), sum(t.turns), sum(t.tool_calls)
FROM samples s JOIN scores x USING (sample_id, epoch) JOIN sessions t ON t.tree_id = x.tree_id
WHERE s.position BETWEEN ? AND ? GROUP BY s.position, s.epoch, t.model ORDER BY s.position, s.epoch, t.model
"""
_TREES = """
SELECT s.sample_id, s.epoch, a.number, a.tree_id FROM samples s JOIN attempts a USING (sample_id, epoch)
WHERE s.position BETWEEN ? AND ? AND a.tree_id IS NOT NULL ORDER BY s.position, s.epoch, a.number
"""


@dataclass(slots=True)
class WrittenResults:
    """What a write of results made."""

    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows of each table."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Trees that no journal here holds or that can't be read, with the reason; their events are missing."""


class ResultRows:
    """The rows of a run's tables, range by range, from its ledger and journals.

    Args:
        run: The run.
        written: Trees whose events are left out, because other files of the table have them.
    """

    def __init__(self, run: RecordedRun, written: Container[str] = ()) -> None:
        self._run = run
        self._written = written
        self.unreadable: dict[str, str] = {}
        """Trees that could not be read so far, with the reason."""

    def yield_ranges(self, size: int = SAMPLES_PER_PART) -> Iterator[tuple[int, int]]:
        """Yield ranges of samples' positions, both ends included; at least one, even without samples."""
        for first in range(0, max(self._run.find_last_position(), 0) + 1, size):
            yield first, first + size - 1

    def of(self, table: str, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table for a range of positions, in the suite's order."""
        makers: dict[str, Callable[[int, int], Iterator[tuple[Any, ...]]]] = {
            "samples": self._yield_samples,
            "history": self._yield_history,
            "commands": self._yield_commands,
            "sessions": self._yield_sessions,
            "events": self._yield_events,
            "usage": self._yield_usage,
        }
        return makers[table](first, last)

    def _yield_samples(self, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        failed = {(each.sample_id, each.epoch): each for each in self._run.failed(first, last)}
        for row in self._run.rows(_SAMPLES, first, last):
            *head, input_, target, metadata = row
            sample_id, epoch, state, attempts, status, passed, scores, output, error_kind, error, *rest = head
            is_mended = state == "scored" and "rescore" in rest
            if is_mended:  # the attempt's error was its scorer's
                error_kind = error = None
            named = list_scores(scores)
            given_up = failed.get((sample_id, epoch))
            if given_up is not None:
                error_kind, error = given_up.error_kind, given_up.error
                rest[0:3] = given_up.tree_id or None, None, given_up.started_at_ms
            yield (
                sample_id,
                epoch,
                None if input_ is None else json.loads(input_),
                target,
                metadata,
                state,
                attempts,
                status,
                None if passed is None else bool(passed),
                named[0]["value"] if named else None,
                named,
                output,
                error_kind or None,
                error or None,
                *rest,
            )

    def _yield_history(self, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        rows = self._run.rows(_HISTORY, first, last)
        for sample_id, epoch, revision, status, passed, scores, *rest in rows:
            named = list_scores(scores)
            value = named[0]["value"] if named else None
            decided = None if passed is None else bool(passed)
            yield (sample_id, epoch, revision, status, decided, value, named, *rest)

    def _yield_commands(self, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        if first:  # they are of the whole run: the first part holds them
            return
        for row in self._run.rows(_COMMANDS):
            yield (*row[:4], bool(row[4]), *row[5:])

    def _yield_sessions(self, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        yield from self._run.rows(_SESSIONS, first, last)

    def _yield_usage(self, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        for sample_id, epoch, model, *amounts in self._run.rows(_USAGE, first, last):
            yield (sample_id, epoch, model, True, *amounts)
        with RunFacts(self._run.run_dir) as facts:
            for attempt in self._run.list_unscored_attempts(first, last):
                yield from self._yield_unscored(facts, attempt)

    def _yield_unscored(self, facts: RunFacts, attempt: AttemptRecord) -> Iterator[tuple[Any, ...]]:
        try:
            used = sum_usage_by_model(facts.read(attempt.tree_id))
        except JournalError as error:
            self.unreadable[attempt.tree_id] = str(error)
            return
        for model, (usage, sessions) in used.items():
            tokens = (usage.input_tokens, usage.output_tokens, usage.cost_usd, usage.turns, usage.tool_calls)
            yield (attempt.sample_id, attempt.epoch, model, False, 1, sessions, *tokens)

    def _yield_events(self, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        with RunFacts(self._run.run_dir) as facts:
            for sample_id, epoch, number, tree_id in self._run.rows(_TREES, first, last):
                if tree_id in self._written:
                    continue
                head = (sample_id, epoch, number, tree_id)
                try:
                    for each in facts.read(tree_id):
                        kind = parse_fact_kind(each.text)
                        yield (*head, each.seq, each.session, kind, each.at_ms, each.cause, each.text)
                except JournalError as error:
                    self.unreadable[tree_id] = str(error)


def list_scores(text: str | None) -> list[dict[str, Any]]:
    """Return the scores of a ledger's row in their order, each with the members of :data:`SCORE`.

    Raises:
        ConfigError: they can't be read.
    """
    return [
        {"name": name, **score, "metadata": json.dumps(score["metadata"])}
        for name, score in parse_scores(text).items()
    ]


def record_batches(table: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Yield the rows of a table as record batches of at most :data:`ROWS_PER_GROUP` rows."""
    schema = SCHEMAS[table]
    rest = iter(rows)
    while chunk := list(islice(rest, ROWS_PER_GROUP)):
        columns = [
            pa.array(values, each.type) for values, each in zip(zip(*chunk, strict=True), schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def read_table(run: RecordedRun, table: str) -> Any:
    """Return a table of a run as it is now, whole and in memory."""
    rows = ResultRows(run)
    batches = [
        batch
        for first, last in rows.yield_ranges()
        for batch in record_batches(table, rows.of(table, first, last))
    ]
    return pa.Table.from_batches(batches, SCHEMAS[table]).unify_dictionaries()


def write_tables(
    run: RecordedRun, results: Path, tables: Iterable[str], *, size: int = SAMPLES_PER_PART
) -> WrittenResults:
    """Write tables of a run as Parquet parts, in place of those of an earlier write.

    A reader finds whole parts at any time. Writers of the same directory take turns.

    Args:
        run: The run.
        results: Where the tables' directories are.
        tables: Names of tables.
        size: How many samples a part covers.

    Raises:
        OSError: the directory can't be written; parts that were renamed before stay.
    """
    rows, written = ResultRows(run, WrittenEvents(run.run_dir)), WrittenResults()
    with _lock_writer(results):
        for table in tables:
            folder = results / table
            folder.mkdir(exist_ok=True)
            for left in folder.glob(f"{_DRAFT}*"):
                left.unlink()
            names = set()
            written.rows[table] = 0
            for number, (first, last) in enumerate(rows.yield_ranges(size)):
                names.add(_NAME.format(number))
                batches = record_batches(table, rows.of(table, first, last))
                written.rows[table] += _write_part(folder / _NAME.format(number), SCHEMAS[table], batches)
            for old in folder.glob(_NAMES):
                if old.name not in names:
                    old.unlink()
    written.unreadable = rows.unreadable
    return written


def _write_part(path: Path, schema: Any, batches: Iterable[Any]) -> int:
    draft = path.with_name(f"{_DRAFT}{secrets.token_hex(6)}")
    count = 0
    try:
        with draft.open("wb") as file:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    count += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    return count


@contextmanager
def _lock_writer(results: Path) -> Iterator[None]:
    results.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(results, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
