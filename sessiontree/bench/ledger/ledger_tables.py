"""The tables of a ledger: how the file is opened, and what its rows hold.

Not here: who may change a row; ``ledger_rules.py`` decides, ``ledger.py`` applies it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from sessiontree import ConfigError, JournalError, ReceiptLine
from sessiontree.bench.ledger.failure_kinds import FailureKind, Fault
from sessiontree.bench.ledger.leases import Tally
from sessiontree.bench.ledger.ledger_rules import SampleRow
from sessiontree.bench.ledger.ledger_schema import TABLES
from sessiontree.bench.suite.suite import Score
from sessiontree.contracts.values.quick_dataclass import dataclass

Key: TypeAlias = tuple[str, int]
"""Sample id and epoch."""
VERSION: Final = "1"
SEEN_MS: Final = 30_000
"""For how long after its last note in the ledger a program counts as working."""
BUSY_S: Final = 120.0
"""How long a commit waits for other programs."""
CAPPED: Final = "CostCapReached"
"""Kind of the error of an attempt that the run's cap stopped."""
CHOSEN: Final = "AND position IN (SELECT position FROM temp.chosen)"
"""The end of a condition: only the samples that this connection has chosen."""


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What an attempt is scored with."""

    scores: Mapping[str, Score]
    status: str
    """``completed``, ``empty``, ``timeout``, ``budget``, or ``error``, which decides nothing."""
    wall_ms: int
    output: str = "null"
    """JSON text."""
    tree_id: str | None = None
    receipt: Sequence[ReceiptLine] = ()
    error_kind: str | None = None
    error: str | None = None
    raised: Sequence[str] = ()
    """Where the suite's own code raised it: lines of ``path:line in function: source``, outermost first."""
    failure: FailureKind | None = None
    """Why it did not end with an answer; None = it did."""

    @property
    def decided(self) -> bool:
        """Whether the attempt says if the sample passes."""
        return self.failure is None or self.failure.fault is Fault.AGENT

    @property
    def passed(self) -> bool:
        """Whether every scorer says so."""
        return self.decided and bool(self.scores) and all(each.is_pass for each in self.scores.values())


@dataclass(frozen=True, slots=True)
class MadeBy:
    """Where a score comes from."""

    revision: int
    """Which score of its (sample, epoch) it is, from 1."""
    at_ms: int
    provenance: int | None = None
    """Number of the code and settings whose scorers gave it."""
    made_by: Literal["attempt", "rescore"] = "attempt"


def open_ledger(path: Path, *, shared: bool = False) -> sqlite3.Connection:
    """Return a connection to a ledger, new or not.

    Raises:
        JournalError: it can't be opened, or is of another release.
    """
    try:
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        _set_journal_mode(db, path, shared=shared)
        # A score that was reported must survive a power failure: with less, the last commits of a WAL may be
        # lost.
        db.execute("PRAGMA synchronous = FULL")
        # At once for writing: a reader that wants to write later is refused by SQLite while another one
        # writes.
        db.execute("BEGIN IMMEDIATE")
        for statement in TABLES.split(";"):
            db.execute(statement)
        db.execute("INSERT OR IGNORE INTO run VALUES ('ledger_version', ?)", (VERSION,))
        (version,) = db.execute("SELECT value FROM run WHERE key = 'ledger_version'").fetchone()
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise JournalError(str(path), f"{error}; give another run directory") from error
    if version != VERSION:
        db.close()
        raise JournalError(
            str(path), f"its form is {version}, this release writes {VERSION}; go on with the release it has"
        )
    return db


def _set_journal_mode(db: sqlite3.Connection, path: Path, *, shared: bool) -> None:
    """Set how a ledger is written, one program after the other: SQLite refuses at once instead of waiting."""
    if shared:  # what is kept so from the beginning never changes; not every shared disk has such locks
        db.execute("PRAGMA journal_mode = DELETE")
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The directory and not the file: closing a descriptor of the file would drop the locks that SQLite
        # has on it.
        fcntl.flock(folder, fcntl.LOCK_EX)
        db.execute("PRAGMA journal_mode = WAL")
    finally:
        os.close(folder)


def read_time_ms(db: sqlite3.Connection) -> int:
    """Return the time, at least the latest that the ledger has seen; only people read it."""
    (now,) = db.execute(
        "INSERT INTO run VALUES ('clock_ms', ?1) ON CONFLICT(key) DO UPDATE "
        "SET value = max(CAST(value AS INTEGER), ?1) RETURNING CAST(value AS INTEGER)",
        (int(time.time() * 1000),),
    ).fetchone()
    return int(now)


def has_settings(db: sqlite3.Connection, settings: Mapping[str, str]) -> bool:
    """Return whether a ledger is that of a run with these settings."""
    return settings.items() <= dict(db.execute("SELECT key, value FROM run").fetchall()).items()


def has_begun(db: sqlite3.Connection) -> bool:
    """Return whether an attempt of the run had a tree, may still get one, or was scored.

    Of an attempt whose program was killed, nobody knows.
    """
    (found,) = db.execute(
        "SELECT EXISTS (SELECT 1 FROM scores) OR EXISTS (SELECT 1 FROM attempts "
        "WHERE tree_id IS NOT NULL OR ended_at_ms IS NULL OR outcome = 'lost')"
    ).fetchone()
    return bool(found)


def forget_run(db: sqlite3.Connection) -> None:
    """Remove a run that never began: its settings, its samples and what kept its attempts from starting."""
    db.execute("DELETE FROM run WHERE key NOT IN ('ledger_version', 'clock_ms')")
    for table in ("samples", "sample_data", "attempts", "commands", "provenance", "controls"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of this file


def is_paused(db: sqlite3.Connection) -> bool:
    """Whether a command has paused the run, and none has let it go on."""
    found = db.execute(
        "SELECT value FROM controls WHERE name = 'paused' ORDER BY number DESC LIMIT 1"
    ).fetchone()
    return found is not None and found[0] == "true"


def choose_positions(db: sqlite3.Connection, positions: Iterable[int]) -> None:
    """Choose the samples of a connection by their places in the suite; no other connection sees that."""
    db.execute("CREATE TEMP TABLE IF NOT EXISTS chosen(position INTEGER PRIMARY KEY)")
    db.execute("DELETE FROM temp.chosen")
    db.executemany("INSERT OR IGNORE INTO temp.chosen VALUES (?)", ((each,) for each in positions))


def select_next_samples(
    db: sqlite3.Connection, bound: Sequence[int], most: int, *, suspect: bool, chosen: str = ""
) -> list[Key]:
    """Return the first (sample, epoch) that wait, either suspects or others.

    Suspects with the fewest failures come first: one that dies at each start holds up none of the others.

    Args:
        db: The ledger.
        bound: The last epoch, and how many samples, the first ones.
        most: How many at most.
        suspect: Whether suspects are wanted.
        chosen: The end of a condition, :data:`CHOSEN`; empty = no samples were chosen.
    """
    order = "failures, epoch, position" if suspect else "epoch, position"
    return db.execute(f"{_NEXT} {chosen} ORDER BY {order} LIMIT ?", (suspect, *bound, most)).fetchall()


_NEXT = (
    "SELECT sample_id, epoch FROM samples WHERE state = 'waiting' AND suspect = ? AND epoch <= ? "
    "AND position < ?"
)


def count_states(db: sqlite3.Connection, bound: Sequence[int], chosen: str) -> Tally:
    """Count samples by state.

    Args:
        db: The ledger.
        bound: Only epochs up to the first number, and positions below the second.
        chosen: The end of the condition: ``CHOSEN``, or nothing.
    """
    found = db.execute(
        "SELECT state, count(*) FROM samples WHERE epoch <= ? AND position < ? "  # noqa: S608 - fixed
        f"{chosen} GROUP BY state",
        bound,
    )
    (passed,) = db.execute(
        "SELECT coalesce(sum(passed), 0) FROM scores "  # noqa: S608 - fixed text
        f"JOIN samples USING (sample_id, epoch) WHERE epoch <= ? AND position < ? {chosen}",
        bound,
    ).fetchone()
    (suspects,) = db.execute(
        "SELECT count(*) FROM samples WHERE state = 'waiting' AND suspect AND epoch <= ? "  # noqa: S608
        f"AND position < ? {chosen}",
        bound,
    ).fetchone()
    states = dict(found.fetchall())
    return Tally(**states, passed=passed, suspects=suspects, cost_usd=read_spent_usd(db))


def read_spent_usd(db: sqlite3.Connection) -> float:
    """Return what ended attempts have cost, in US dollars."""
    (spent,) = db.execute("SELECT CAST(value AS REAL) FROM run WHERE key = 'spent_usd'").fetchone()
    return float(spent)


def sum_reserved_usd(db: sqlite3.Connection) -> float:
    """Return what open attempts hold, in US dollars."""
    (reserved,) = db.execute(
        "SELECT total(max(cost_usd, coalesce(reserved_usd, 0))) FROM attempts WHERE ended_at_ms IS NULL"
    ).fetchone()
    return float(reserved)


def find_stop_cost(db: sqlite3.Connection, key: Key) -> float:
    """Return the cost at which the run's cap stopped an earlier attempt; 0 = it stopped none."""
    (cost_usd,) = db.execute(
        "SELECT coalesce(max(cost_usd), 0) FROM attempts "
        "WHERE sample_id = ? AND epoch = ? AND error_kind = ?",
        (*key, CAPPED),
    ).fetchone()
    return float(cost_usd)


def sample_row(db: sqlite3.Connection, key: Key) -> SampleRow:
    """Return what the ledger knows of one (sample, epoch).

    Raises:
        ConfigError: it does not hold it.
    """
    found = db.execute(
        "SELECT state, attempts, failures, lease_id, revision, suspect, alone FROM samples "
        "WHERE sample_id = ? AND epoch = ?",
        key,
    ).fetchone()
    if found is None:
        raise ConfigError(f"the ledger has no sample {key[0]!r}, epoch {key[1]}")
    state, attempts, failures, lease_id, revision, suspect, alone = found
    return SampleRow(state, attempts, failures, lease_id, revision, bool(suspect), bool(alone))


def put_sample(db: sqlite3.Connection, key: Key, row: SampleRow) -> None:
    """Write what a step has made of one (sample, epoch)."""
    db.execute(
        "UPDATE samples SET state = ?, attempts = ?, failures = ?, lease_id = ?, revision = ?, suspect = ?, "
        "alone = ? WHERE sample_id = ? AND epoch = ?",
        (row.state, row.attempts, row.failures, row.lease_id, row.revision, row.suspect, row.alone, *key),
    )


def end_attempt(
    db: sqlite3.Connection,
    lease_id: str,
    now_ms: int,
    outcome: str,
    cost_usd: float,
    notes: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """End an attempt, and count what it cost; once.

    Args:
        db: The ledger.
        lease_id: The attempt's lease.
        now_ms: The time.
        outcome: How it ended.
        cost_usd: What it cost; more may be known already.
        notes: What else is noted of it, by column.
    """
    columns = "".join(f", {name} = ?" for name in notes)
    ended = db.execute(
        "UPDATE attempts SET ended_at_ms = ?, outcome = ?, cost_usd = max(cost_usd, ?), "  # noqa: S608 - names of this room
        f"reserved_usd = NULL{columns} WHERE lease_id = ? AND ended_at_ms IS NULL RETURNING cost_usd",
        (now_ms, outcome, cost_usd, *notes.values(), lease_id),
    ).fetchone()
    if ended is not None and ended[0]:
        db.execute(
            "UPDATE run SET value = CAST(value AS REAL) + ? WHERE key = 'spent_usd'", (float(ended[0]),)
        )


def insert_score(
    db: sqlite3.Connection,
    key: Key,
    lease_id: str,
    result: AttemptResult,
    made: MadeBy,
) -> float:
    """Write a score and the sessions of its tree; return what they cost, in US dollars."""
    used = [line.usage for line in result.receipt]
    cost_usd = sum(each.cost_usd for each in used)
    row = {
        "sample_id": key[0],
        "epoch": key[1],
        "revision": made.revision,
        "lease_id": lease_id,
        "tree_id": result.tree_id,
        "scores": serialize_scores(result.scores if result.decided else {}),
        "passed": result.passed if result.decided else None,
        "status": result.status,
        "wall_ms": result.wall_ms,
        "input_tokens": sum(each.input_tokens for each in used),
        "output_tokens": sum(each.output_tokens for each in used),
        "cost_usd": cost_usd,
        "turns": sum(each.turns for each in used),
        "tool_calls": sum(each.tool_calls for each in used),
        "sessions": len(used),
        "output": result.output,
        "committed_at_ms": made.at_ms,
        "made_by": made.made_by,
        "provenance": made.provenance,
    }
    insert_row(db, "scores", row)
    for line in result.receipt:
        db.execute(_INSERT_SESSION, _build_session_row(key, lease_id, result, line))
    return cost_usd


def insert_row(db: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    """Insert a row by the names of its columns."""
    marks = ", ".join("?" for _ in row)
    statement = f"INSERT INTO {table}({', '.join(row)}) VALUES ({marks})"  # noqa: S608 - names of this room
    db.execute(statement, tuple(row.values()))


def serialize_scores(scores: Mapping[str, Score]) -> str:
    """Return scores by name as a ledger's row holds them."""
    return json.dumps(
        {
            name: {
                "value": score.value,
                "passed": score.is_pass,
                "answer": score.answer,
                "explanation": score.explanation,
                "metadata": dict(score.metadata),
            }
            for name, score in scores.items()
        }
    )


_INSERT_SESSION = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def _build_session_row(key: Key, lease_id: str, result: AttemptResult, line: ReceiptLine) -> tuple[Any, ...]:
    used = line.usage
    return (
        *key,
        lease_id,
        result.tree_id,
        line.session_id,
        str(line.kind.value),
        line.session_id.rpartition("/")[0] or None,
        line.agent,
        line.model,
        str(line.status.value),
        used.input_tokens,
        used.output_tokens,
        used.cost_usd,
        used.turns,
        used.tool_calls,
    )


def count_room(db: sqlite3.Connection, owner: str, held: int, at_once: int, now_ms: int) -> int:
    """Return how many more leases a program may take, so that all programs together keep a bound.

    Each program that works gets an equal part, so one that comes later finds its part free soon.

    Args:
        db: The ledger.
        owner: The program.
        held: How many leases it holds.
        at_once: The bound.
        now_ms: The time.
    """
    query = (
        "SELECT count(DISTINCT owner) FROM commands WHERE owner != ? AND ended_at_ms IS NULL "
        "AND kind != 'rescore' AND started_at_ms + worked_ms > ?"
    )
    (others,) = db.execute(query, (owner, now_ms - SEEN_MS)).fetchone()
    if not others:
        return max(0, at_once - held)
    (leased,) = db.execute("SELECT count(*) FROM samples WHERE state = 'leased'").fetchone()
    # Rounded up: with more programs than attempts, each would otherwise wait for a part of nothing.
    part = -(-at_once // (int(others) + 1))
    return max(0, min(at_once - int(leased), part - held))
