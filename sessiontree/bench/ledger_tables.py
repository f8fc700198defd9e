"""The tables of a ledger: how the file is opened, and what its rows hold.

Not here: who may change a row; ``ledger_rules.py`` decides, ``ledger.py`` applies it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from sessiontree import ConfigError, JournalError, ReceiptLine
from sessiontree.bench.ledger_rules import SampleRow
from sessiontree.bench.suite import Score

Key: TypeAlias = tuple[str, int]
"""Sample id and epoch."""
VERSION: Final = "1"
BUSY_S: Final = 120.0
"""How long a commit waits for other programs."""
CAPPED: Final = "CostCapReached"
"""Kind of the error of an attempt that the run's cap stopped."""
TABLES: Final = """
CREATE TABLE IF NOT EXISTS run(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS samples(
  sample_id TEXT NOT NULL, epoch INTEGER NOT NULL, position INTEGER NOT NULL, state TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0, lease_id TEXT,
  PRIMARY KEY(sample_id, epoch));
CREATE INDEX IF NOT EXISTS samples_by_position ON samples(position);
CREATE INDEX IF NOT EXISTS samples_by_state ON samples(state, epoch, position);
CREATE TABLE IF NOT EXISTS attempts(
  lease_id TEXT PRIMARY KEY, sample_id TEXT NOT NULL, epoch INTEGER NOT NULL, number INTEGER NOT NULL,
  owner TEXT NOT NULL, tree_id TEXT, workspace TEXT, started_at_ms INTEGER NOT NULL,
  beat INTEGER NOT NULL DEFAULT 0, beat_at_ms INTEGER NOT NULL, ended_at_ms INTEGER, outcome TEXT,
  error_kind TEXT, error TEXT, raised TEXT, cost_usd REAL NOT NULL DEFAULT 0, reserved_usd REAL,
  kept INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_by_workspace ON attempts(workspace);
CREATE INDEX IF NOT EXISTS attempts_open ON attempts(owner) WHERE ended_at_ms IS NULL;
CREATE INDEX IF NOT EXISTS attempts_of ON attempts(sample_id, epoch);
CREATE TABLE IF NOT EXISTS scores(
  sample_id TEXT NOT NULL, epoch INTEGER NOT NULL, lease_id TEXT NOT NULL, tree_id TEXT, scores TEXT NOT NULL,
  passed INTEGER NOT NULL, status TEXT NOT NULL, wall_ms INTEGER NOT NULL, input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL, cost_usd REAL NOT NULL, turns INTEGER NOT NULL, tool_calls INTEGER NOT NULL,
  sessions INTEGER NOT NULL, output TEXT NOT NULL, committed_at_ms INTEGER NOT NULL,
  PRIMARY KEY(sample_id, epoch)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions(
  sample_id TEXT NOT NULL, epoch INTEGER NOT NULL, lease_id TEXT NOT NULL, tree_id TEXT NOT NULL,
  session_id TEXT NOT NULL, kind TEXT NOT NULL, parent TEXT, agent TEXT, model TEXT, status TEXT NOT NULL,
  input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost_usd REAL NOT NULL,
  turns INTEGER NOT NULL, tool_calls INTEGER NOT NULL, PRIMARY KEY(tree_id, session_id)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What an attempt is scored with."""

    scores: Mapping[str, Score]
    status: str
    """``completed``, ``empty``, ``timeout``, ``budget`` or ``error``."""
    wall_ms: int
    output: str = "null"
    """JSON text."""
    tree_id: str | None = None
    receipt: Sequence[ReceiptLine] = ()
    error_kind: str | None = None
    error: str | None = None
    raised: Sequence[str] = ()
    """Where the suite's own code raised it: lines of ``path:line in function: source``, outermost first."""

    @property
    def passed(self) -> bool:
        """Whether every scorer says so."""
        return bool(self.scores) and all(each.is_pass for each in self.scores.values())


def open_ledger(path: Path, *, shared: bool = False) -> sqlite3.Connection:
    """Return a connection to a ledger, new or not.

    Raises:
        JournalError: it can't be opened, or is of another release.
    """
    try:
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        _set_journal_mode(db, path, shared=shared)
        db.execute("PRAGMA synchronous = FULL")
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
        fcntl.flock(folder, fcntl.LOCK_EX)
        db.execute("PRAGMA journal_mode = WAL")
    finally:
        os.close(folder)


def now_ms(db: sqlite3.Connection) -> int:
    """Return the time, at least the latest that the ledger has seen; only people read it."""
    (now,) = db.execute(
        "INSERT INTO run VALUES ('clock_ms', ?1) ON CONFLICT(key) DO UPDATE "
        "SET value = max(CAST(value AS INTEGER), ?1) RETURNING CAST(value AS INTEGER)",
        (int(time.time() * 1000),),
    ).fetchone()
    return int(now)


def holds_settings(db: sqlite3.Connection, settings: Mapping[str, str]) -> bool:
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
    db.execute("DELETE FROM samples")
    db.execute("DELETE FROM attempts")


def spent_usd(db: sqlite3.Connection) -> float:
    """Return what ended attempts have cost, in US dollars."""
    (spent,) = db.execute("SELECT CAST(value AS REAL) FROM run WHERE key = 'spent_usd'").fetchone()
    return float(spent)


def reserved_usd(db: sqlite3.Connection) -> float:
    """Return what open attempts hold, in US dollars."""
    (reserved,) = db.execute(
        "SELECT total(max(cost_usd, coalesce(reserved_usd, 0))) FROM attempts WHERE ended_at_ms IS NULL"
    ).fetchone()
    return float(reserved)


def stopped_at(db: sqlite3.Connection, key: Key) -> float:
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
        "SELECT state, attempts, failures, lease_id FROM samples WHERE sample_id = ? AND epoch = ?", key
    ).fetchone()
    if found is None:
        raise ConfigError(f"the ledger has no sample {key[0]!r}, epoch {key[1]}")
    return SampleRow(*found)


def put_sample(db: sqlite3.Connection, key: Key, row: SampleRow) -> None:
    """Write what a step has made of one (sample, epoch)."""
    db.execute(
        "UPDATE samples SET state = ?, attempts = ?, failures = ?, lease_id = ? "
        "WHERE sample_id = ? AND epoch = ?",
        (row.state, row.attempts, row.failures, row.lease_id, *key),
    )


def end_attempt(db: sqlite3.Connection, lease_id: str, now_ms: int, outcome: str, cost_usd: float) -> None:
    """End an attempt, and count what it cost; once."""
    ended = db.execute(
        "UPDATE attempts SET ended_at_ms = ?, outcome = ?, cost_usd = max(cost_usd, ?), reserved_usd = NULL "
        "WHERE lease_id = ? AND ended_at_ms IS NULL RETURNING cost_usd",
        (now_ms, outcome, cost_usd, lease_id),
    ).fetchone()
    if ended is not None:
        db.execute(
            "UPDATE run SET value = CAST(value AS REAL) + ? WHERE key = 'spent_usd'", (float(ended[0]),)
        )


def insert_score(
    db: sqlite3.Connection, key: Key, lease_id: str, result: AttemptResult, committed_at_ms: int
) -> float:
    """Write a score and the sessions of its tree; return what they cost, in US dollars."""
    used = [line.usage for line in result.receipt]
    cost_usd = sum(each.cost_usd for each in used)
    db.execute(
        "INSERT INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *key,
            lease_id,
            result.tree_id,
            _scores_text(result.scores),
            result.passed,
            result.status,
            result.wall_ms,
            sum(each.input_tokens for each in used),
            sum(each.output_tokens for each in used),
            cost_usd,
            sum(each.turns for each in used),
            sum(each.tool_calls for each in used),
            len(used),
            result.output,
            committed_at_ms,
        ),
    )
    for line in result.receipt:
        db.execute(_INSERT_SESSION, _session_row(key, lease_id, result, line))
    return cost_usd


def _scores_text(scores: Mapping[str, Score]) -> str:
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


def _session_row(key: Key, lease_id: str, result: AttemptResult, line: ReceiptLine) -> tuple[Any, ...]:
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
