"""The ledger of a run: one SQLite file that says who works on which sample, and holds one score for each.

Several programs may use it at once. Work that is ready at the same moment is committed together; what a call
returned is durable. The steps are those of ``ledger_rules.py``.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from sessiontree import ConfigError, ReceiptLine, SessionTreeError
from sessiontree.bench.ledger_rules import Ending, LedgerRules, SampleRow
from sessiontree.bench.suite import Score

T = TypeVar("T")
Key = tuple[str, int]
"""Sample id and epoch."""
VERSION: Final = "1"
NO_LIMIT: Final = 2**62
BUSY_S: Final = 120.0
"""How long a commit waits for other programs."""
TABLES: Final = """
CREATE TABLE IF NOT EXISTS run(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS samples(
  sample_id TEXT NOT NULL, epoch INTEGER NOT NULL, position INTEGER NOT NULL, state TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0, lease_id TEXT,
  PRIMARY KEY(sample_id, epoch)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS samples_by_state ON samples(state, epoch, position);
CREATE TABLE IF NOT EXISTS attempts(
  lease_id TEXT PRIMARY KEY, sample_id TEXT NOT NULL, epoch INTEGER NOT NULL, number INTEGER NOT NULL,
  owner TEXT NOT NULL, tree_id TEXT, workspace TEXT, started_at_ms INTEGER NOT NULL,
  beat INTEGER NOT NULL DEFAULT 0, beat_at_ms INTEGER NOT NULL, ended_at_ms INTEGER, outcome TEXT,
  error_kind TEXT, error TEXT, cost_usd REAL NOT NULL DEFAULT 0, reserved_usd REAL) WITHOUT ROWID;
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


class LedgerUnusable(SessionTreeError):
    """The ledger of a run can't be read or written.

    Args:
        path: The file.
        reason: What was found, and what to do next.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        """Name the file and the reason."""
        return f"ledger {self.path!r}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SampleLease:
    """The right to work on one (sample, epoch)."""

    lease_id: str
    sample_id: str
    epoch: int
    number: int
    """Which attempt it is, from 1."""


@dataclass(frozen=True, slots=True)
class Result:
    """What an attempt is scored with."""

    scores: Mapping[str, Score]
    status: str
    """``completed``, ``timeout``, ``budget`` or ``error``."""
    wall_ms: int
    output: str = "null"
    """JSON text."""
    tree_id: str | None = None
    receipt: Sequence[ReceiptLine] = ()
    model: str = ""
    error_kind: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """How many (sample, epoch) are in which state, and what was spent."""

    waiting: int = 0
    leased: int = 0
    scored: int = 0
    failed: int = 0
    passed: int = 0
    cost_usd: float = 0.0

    @property
    def total(self) -> int:
        """All of them."""
        return self.waiting + self.leased + self.scored + self.failed


class Ledger:
    """The file ``ledger.sqlite``, used from an event loop; its statements run in one thread.

    Args:
        path: The file; it is created if it is missing.
        owner: Identifies this program among those that use the file.
        rules: The rules.
        shared: Whether other machines may open the file: then no memory is shared with their programs.
    """

    def __init__(
        self, path: Path, owner: str, *, rules: LedgerRules | None = None, shared: bool = False
    ) -> None:
        self._path = path
        self._owner = owner
        self._rules = rules or LedgerRules()
        self._shared = shared
        self._work: queue.SimpleQueue[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]] | None]
        self._work = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._made = 0

    async def __aenter__(self) -> Self:
        """Open the file.

        Raises:
            LedgerUnusable: it can't be opened, or is not a ledger.
        """
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[Any] = self._loop.create_future()
        self._thread = threading.Thread(target=self._serve, args=(opened,), name="sessiontree-ledger")
        self._thread.start()
        await opened
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commit what is ready, and close the file."""
        self._work.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    async def prepare(self, settings: Mapping[str, str], keys: Iterable[Key], retries: int) -> dict[str, str]:
        """Enter samples that are new, and let failed ones wait again where more retries are allowed.

        Args:
            settings: What identifies the run; written once, by whoever comes first.
            keys: Every (sample, epoch) of this command, in order.
            retries: How many infrastructure errors a sample may have.

        Returns:
            The settings that the ledger holds.
        """
        rows = [(sample_id, epoch, position) for position, (sample_id, epoch) in enumerate(keys)]

        def run(db: sqlite3.Connection) -> dict[str, str]:
            db.executemany("INSERT OR IGNORE INTO run VALUES (?, ?)", settings.items())
            found = dict(db.execute("SELECT key, value FROM run").fetchall())
            if all(found[name] == value for name, value in settings.items()):
                db.executemany(
                    "INSERT OR IGNORE INTO samples(sample_id, epoch, position, state) "
                    "VALUES (?, ?, ?, 'waiting')",
                    rows,
                )
                self._reopen(db, retries)
            return found

        return await self._do(run)

    def _reopen(self, db: sqlite3.Connection, retries: int) -> None:
        failed = db.execute("SELECT sample_id, epoch FROM samples WHERE state = 'failed'").fetchall()
        for key in failed:
            row = self._rules.reopen(_row(db, key), retries)
            if row is not None:
                _put(db, key, row)

    async def lease(
        self, epochs: int, limit: int | None, reserved_usd: float | None = None
    ) -> SampleLease | None:
        """Lease the next waiting (sample, epoch); None = none waits.

        Args:
            epochs: Only epochs up to this one.
            limit: Only so many samples, the first ones; None = all.
            reserved_usd: What it may cost.
        """
        self._made += 1
        lease_id = f"{self._owner} {self._made}"

        def run(db: sqlite3.Connection) -> SampleLease | None:
            key = db.execute(
                "SELECT sample_id, epoch FROM samples WHERE state = 'waiting' AND epoch <= ? "
                "AND position < ? ORDER BY epoch, position LIMIT 1",
                (epochs, NO_LIMIT if limit is None else limit),
            ).fetchone()
            if key is None:
                return None
            row = self._rules.lease(_row(db, key), lease_id)
            if row is None:
                return None
            _put(db, key, row)
            now = _now_ms(db)
            db.execute(
                "INSERT INTO attempts(lease_id, sample_id, epoch, number, owner, started_at_ms, beat_at_ms, "
                "reserved_usd) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (lease_id, *key, row.attempts, self._owner, now, now, reserved_usd),
            )
            return SampleLease(lease_id, key[0], key[1], row.attempts)

        return await self._do(run)

    async def commit(self, lease: SampleLease, result: Result) -> bool:
        """Write the score of an attempt; False = the lease no longer counts, and nothing was written."""

        def run(db: sqlite3.Connection) -> bool:
            key = (lease.sample_id, lease.epoch)
            row = self._rules.commit(_row(db, key), lease.lease_id)
            if row is None:
                return False
            now = _now_ms(db)
            used = [line.usage for line in result.receipt]
            cost_usd = sum(each.cost_usd for each in used)
            _put(db, key, row)
            db.execute(
                "INSERT INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *key,
                    lease.lease_id,
                    result.tree_id,
                    _scores_text(result.scores),
                    bool(result.scores) and all(each.is_pass for each in result.scores.values()),
                    result.status,
                    result.wall_ms,
                    sum(each.input_tokens for each in used),
                    sum(each.output_tokens for each in used),
                    cost_usd,
                    sum(each.turns for each in used),
                    sum(each.tool_calls for each in used),
                    len(used),
                    result.output,
                    now,
                ),
            )
            for line in result.receipt:
                db.execute(_INSERT_SESSION, _session_row(key, lease.lease_id, result, line))
            _end(db, lease.lease_id, now, "timeout" if result.status == "timeout" else "scored", cost_usd)
            db.execute(
                "UPDATE attempts SET tree_id = ?, error_kind = ?, error = ? WHERE lease_id = ?",
                (result.tree_id, result.error_kind, result.error, lease.lease_id),
            )
            return True

        return await self._do(run)

    async def give_back(
        self,
        lease: SampleLease,
        ending: Ending,
        retries: int,
        *,
        cost_usd: float = 0.0,
        error: BaseException | None = None,
    ) -> bool:
        """End an attempt without a score; False = the lease no longer counts."""

        def run(db: sqlite3.Connection) -> bool:
            key = (lease.sample_id, lease.epoch)
            row = self._rules.give_back(_row(db, key), lease.lease_id, ending, retries)
            _end(db, lease.lease_id, _now_ms(db), ending, cost_usd)
            if error is not None:
                db.execute(
                    "UPDATE attempts SET error_kind = ?, error = ? WHERE lease_id = ?",
                    (type(error).__name__, str(error), lease.lease_id),
                )
            if row is None:
                return False
            _put(db, key, row)
            return True

        return await self._do(run)

    async def note_tree(self, lease: SampleLease, tree_id: str, workspace: str) -> None:
        """Record the tree and the workspace of an attempt, before the tree does anything."""

        def run(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE attempts SET tree_id = ?, workspace = ? WHERE lease_id = ?",
                (tree_id, workspace, lease.lease_id),
            )

        await self._do(run)

    async def beat(self, costs: Mapping[str, float]) -> set[str]:
        """Raise the beat of this program's leases; return those that still count.

        Args:
            costs: What the attempts have cost so far, in US dollars, by lease.
        """

        def run(db: sqlite3.Connection) -> set[str]:
            now = _now_ms(db)
            for lease_id, cost_usd in costs.items():
                db.execute(
                    "UPDATE attempts SET cost_usd = ? WHERE lease_id = ? AND ended_at_ms IS NULL",
                    (cost_usd, lease_id),
                )
            found = db.execute(
                "UPDATE attempts SET beat = beat + 1, beat_at_ms = ? "
                "WHERE owner = ? AND ended_at_ms IS NULL RETURNING lease_id",
                (now, self._owner),
            )
            return {lease_id for (lease_id,) in found.fetchall()}

        return await self._do(run)

    async def others(self) -> dict[str, tuple[str, int]]:
        """Return the owner and the beat of each open lease of other programs."""

        def run(db: sqlite3.Connection) -> dict[str, tuple[str, int]]:
            found = db.execute(
                "SELECT lease_id, owner, beat FROM attempts WHERE ended_at_ms IS NULL AND owner != ?",
                (self._owner,),
            )
            return {lease_id: (owner, beat) for lease_id, owner, beat in found.fetchall()}

        return await self._do(run)

    async def take_over(self, beats: Mapping[str, int], retries: int) -> list[tuple[str, str | None]]:
        """End leases whose holders are gone, each only if its beat is still the one that was seen.

        Returns:
            Lease and workspace of each that was ended.
        """

        def run(db: sqlite3.Connection) -> list[tuple[str, str | None]]:
            ended = []
            for lease_id, beat in beats.items():
                found = db.execute(
                    "SELECT sample_id, epoch, workspace, cost_usd FROM attempts "
                    "WHERE lease_id = ? AND beat = ? AND ended_at_ms IS NULL",
                    (lease_id, beat),
                ).fetchone()
                if found is None:
                    continue
                sample_id, epoch, workspace, cost_usd = found
                row = self._rules.give_back(_row(db, (sample_id, epoch)), lease_id, "lost", retries)
                if row is not None:
                    _put(db, (sample_id, epoch), row)
                _end(db, lease_id, _now_ms(db), "lost", cost_usd)
                ended.append((lease_id, workspace))
            return ended

        return await self._do(run)

    async def tally(self, epochs: int, limit: int | None) -> Tally:
        """Count the samples of a command by state."""
        bound = (epochs, NO_LIMIT if limit is None else limit)

        def run(db: sqlite3.Connection) -> Tally:
            states = dict(
                db.execute(
                    "SELECT state, count(*) FROM samples WHERE epoch <= ? AND position < ? GROUP BY state",
                    bound,
                ).fetchall()
            )
            (passed,) = db.execute(
                "SELECT count(*) FROM scores JOIN samples USING (sample_id, epoch) "
                "WHERE passed AND epoch <= ? AND position < ?",
                bound,
            ).fetchone()
            (cost_usd,) = db.execute("SELECT total(cost_usd) FROM attempts").fetchone()
            return Tally(**states, passed=passed, cost_usd=cost_usd)

        return await self._do(run)

    async def _do(self, run: Callable[[sqlite3.Connection], T]) -> T:
        if self._loop is None:
            raise LedgerUnusable(str(self._path), "it is not open")
        done: asyncio.Future[T] = self._loop.create_future()
        self._work.put((run, done))
        return await done

    def _serve(self, opened: asyncio.Future[Any]) -> None:
        """Open the file, then commit work in batches until the end."""
        try:
            db = open_ledger(self._path, shared=self._shared)
        except (SessionTreeError, OSError) as error:
            self._settle([(opened, None, error)])
            return
        self._settle([(opened, None, None)])
        try:
            is_over = False
            while not is_over:
                batch = [self._work.get()]
                while not self._work.empty():
                    batch.append(self._work.get())
                is_over = None in batch
                self._settle(self._commit(db, [each for each in batch if each is not None]))
        finally:
            db.close()

    def _commit(
        self,
        db: sqlite3.Connection,
        batch: Collection[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]],
    ) -> list[tuple[asyncio.Future[Any], Any, BaseException | None]]:
        """Run a batch in one transaction; return the value or the error of each piece of work."""
        done: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        if not batch:
            return done
        try:
            db.execute("BEGIN IMMEDIATE")
            for run, future in batch:
                done.append(_separately(db, run, future))
            db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            failed = LedgerUnusable(str(self._path), f"{error}; look at the disk, then run the command again")
            return [(future, None, failed) for _, future in batch]
        return done

    def _settle(self, done: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
        def settle() -> None:
            for future, value, error in done:
                if future.done():
                    continue
                if error is None:
                    future.set_result(value)
                else:
                    future.set_exception(error)

        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(settle)


def _separately(
    db: sqlite3.Connection, run: Callable[[sqlite3.Connection], Any], future: asyncio.Future[Any]
) -> tuple[asyncio.Future[Any], Any, BaseException | None]:
    """Run one piece of a batch; if it is refused, only its own changes are undone."""
    db.execute("SAVEPOINT piece")
    try:
        value = run(db)
    except (SessionTreeError, ValueError, TypeError) as error:
        db.execute("ROLLBACK TO piece")
        db.execute("RELEASE piece")
        return future, None, error
    db.execute("RELEASE piece")
    return future, value, None


def open_ledger(path: Path, *, shared: bool = False) -> sqlite3.Connection:
    """Return a connection to a ledger, new or not.

    Raises:
        LedgerUnusable: it can't be opened, or is of another release.
    """
    try:
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        db.execute(f"PRAGMA journal_mode = {'DELETE' if shared else 'WAL'}")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        for statement in TABLES.split(";"):
            db.execute(statement)
        db.execute("INSERT OR IGNORE INTO run VALUES ('ledger_version', ?)", (VERSION,))
        (version,) = db.execute("SELECT value FROM run WHERE key = 'ledger_version'").fetchone()
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise LedgerUnusable(str(path), f"{error}; give another run directory") from error
    if version != VERSION:
        db.close()
        raise LedgerUnusable(
            str(path), f"its form is {version}, this release writes {VERSION}; go on with the release it has"
        )
    return db


def _now_ms(db: sqlite3.Connection) -> int:
    """Return the time, at least the latest that the ledger has seen; only people read it."""
    db.execute(
        "INSERT INTO run VALUES ('clock_ms', ?1) ON CONFLICT(key) DO UPDATE "
        "SET value = max(CAST(value AS INTEGER), ?1)",
        (int(time.time() * 1000),),
    )
    (now,) = db.execute("SELECT CAST(value AS INTEGER) FROM run WHERE key = 'clock_ms'").fetchone()
    return int(now)


def _row(db: sqlite3.Connection, key: Key) -> SampleRow:
    found = db.execute(
        "SELECT state, attempts, failures, lease_id FROM samples WHERE sample_id = ? AND epoch = ?", key
    ).fetchone()
    if found is None:
        raise ConfigError(f"the ledger has no sample {key[0]!r}, epoch {key[1]}")
    return SampleRow(*found)


def _put(db: sqlite3.Connection, key: Key, row: SampleRow) -> None:
    db.execute(
        "UPDATE samples SET state = ?, attempts = ?, failures = ?, lease_id = ? "
        "WHERE sample_id = ? AND epoch = ?",
        (row.state, row.attempts, row.failures, row.lease_id, *key),
    )


def _end(db: sqlite3.Connection, lease_id: str, now_ms: int, outcome: str, cost_usd: float) -> None:
    db.execute(
        "UPDATE attempts SET ended_at_ms = ?, outcome = ?, cost_usd = max(cost_usd, ?), reserved_usd = NULL "
        "WHERE lease_id = ? AND ended_at_ms IS NULL",
        (now_ms, outcome, cost_usd, lease_id),
    )


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


def _session_row(key: Key, lease_id: str, result: Result, line: ReceiptLine) -> tuple[Any, ...]:
    used = line.usage
    return (
        *key,
        lease_id,
        result.tree_id,
        line.session_id,
        str(line.kind.value),
        line.session_id.rpartition("/")[0] or None,
        None,
        result.model,
        str(line.status.value),
        used.input_tokens,
        used.output_tokens,
        used.cost_usd,
        used.turns,
        used.tool_calls,
    )
