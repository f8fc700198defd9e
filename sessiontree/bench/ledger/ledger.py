"""The ledger of a run: one SQLite file that says who works on which sample, and holds one score for each.

Several programs may use it at once. Work that is ready at the same moment is committed together; what a call
returned is durable. The steps are those of ``ledger_rules.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

from sessiontree import ConfigError
from sessiontree.bench.ledger.failure_kinds import FailureKind
from sessiontree.bench.ledger.leases import Leased, SampleLease, Tally
from sessiontree.bench.ledger.ledger_rules import (
    BEAT_S,
    CostCap,
    Ending,
    LedgerRules,
    SampleRow,
    choose_trial_size,
)
from sessiontree.bench.ledger.ledger_tables import (
    CHOSEN,
    AttemptResult,
    Key,
    MadeBy,
    choose_positions,
    count_room,
    count_states,
    end_attempt,
    find_stop_cost,
    forget_run,
    has_begun,
    has_settings,
    insert_score,
    is_paused,
    put_sample,
    read_spent_usd,
    read_time_ms,
    sample_row,
    select_next_samples,
    sum_reserved_usd,
)
from sessiontree.bench.ledger.ledger_thread import LedgerThread
from sessiontree.bench.suite.judge_use import judge_use
from sessiontree.bench.suite.plain_values import to_plain_text
from sessiontree.bench.suite.workspaces import make_workspace_name

T = TypeVar("T")
NO_LIMIT: Final = 2**62


class Ledger:
    """The file ``ledger.sqlite``, used from an event loop; its statements run in one thread.

    Args:
        path: The file; it is created if it is missing.
        owner: Identifies this program among those that use the file.
        rules: The rules.
        shared: Whether other machines may open the file: then no memory is shared with their programs.
        beat_s: How often the beat of this program's leases is raised, whatever the event loop does.
    """

    def __init__(
        self,
        path: Path,
        owner: str,
        *,
        rules: LedgerRules | None = None,
        shared: bool = False,
        beat_s: float = BEAT_S,
    ) -> None:
        self._path = path
        self._owner = owner
        self._rules = rules or LedgerRules()
        self._thread = LedgerThread(path, self._raise_beats, shared=shared, beat_s=beat_s)
        self._open: set[str] = set()
        """Leases of this program that have not ended; only its thread uses it."""
        self._trials: set[str] = set()
        """Those of them whose samples are suspects; likewise."""
        self.costs: dict[str, float] = {}
        """What open attempts have cost so far, in US dollars, by lease; written with each beat."""
        self.provenance: int | None = None
        """Number of the code and settings of this program; marks the attempts and scores that it makes."""
        self.sample_timeout_s: float | None = None
        """Time limit of the attempts that begin; noted with each."""
        self.on_lost: Callable[[str], None] = lambda _: None
        """Called on the loop with each lease that somebody else has taken over."""
        self._made = 0
        self._chosen = ""
        """The end of a condition: only samples that this program works on."""
        self._settings: dict[str, str] = {}
        """What identifies the run that this program works on."""

    async def __aenter__(self) -> Self:
        """Open the file.

        Raises:
            JournalError: it can't be opened, or is not a ledger.
        """
        await self._thread.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commit what is ready, take back the leases that are still open, and close the file."""
        await self._thread.close(self._release)

    def do(self, run: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        """Run a piece of work in the ledger's next transaction, and return its value once that is durable.

        Raises:
            JournalError: the ledger is closed, or can't be written.
        """
        return self._thread.do(run)

    async def prepare(
        self,
        settings: Mapping[str, str],
        sample_ids: Sequence[str],
        epochs: int,
        retries: int,
        positions: Sequence[int] | None = None,
    ) -> dict[str, str]:
        """Enter samples that are new, and let failed ones wait again where more retries are allowed.

        A run of other settings that never began is forgotten.

        Args:
            settings: What identifies the run; written once, by whoever comes first.
            sample_ids: The samples of this command, in the suite's order, from its first sample on.
            epochs: How often each is solved.
            retries: How many infrastructure errors a sample may have.
            positions: The samples' places in the suite: this program then works on these alone. None = they
                are the first ones of the suite, and a limit bounds the program's work.

        Returns:
            The settings that the ledger holds; where they differ, nothing else was written.
        """
        self._settings = dict(settings)
        places = range(len(sample_ids)) if positions is None else positions
        self._chosen = "" if positions is None else CHOSEN

        def run(db: sqlite3.Connection) -> dict[str, str]:
            # In the same transaction as what follows: two programs may begin here at the same moment.
            if not has_settings(db, settings) and not has_begun(db):
                forget_run(db)
            db.executemany("INSERT OR IGNORE INTO run VALUES (?, ?)", settings.items())
            db.execute("INSERT OR IGNORE INTO run VALUES ('created_at_ms', ?)", (str(read_time_ms(db)),))
            db.execute("INSERT OR IGNORE INTO run VALUES ('spent_usd', '0')")
            found = dict(db.execute("SELECT key, value FROM run").fetchall())
            if settings.items() <= found.items():
                for epoch in range(1, epochs + 1):
                    db.executemany(
                        "INSERT OR IGNORE INTO samples(sample_id, epoch, position, state) "
                        "VALUES (?, ?, ?, 'waiting')",
                        zip(sample_ids, repeat(epoch), places, strict=False),
                    )
                if positions is not None:
                    choose_positions(db, positions)
                self._reopen(db, retries)
            return found

        return await self.do(run)

    def _reopen(self, db: sqlite3.Connection, retries: int) -> None:
        failed = db.execute("SELECT sample_id, epoch FROM samples WHERE state = 'failed'").fetchall()
        for key in failed:
            row = self._rules.reopen(sample_row(db, key), retries)
            if row is not None:
                put_sample(db, key, row)

    async def lease(
        self,
        most: int,
        epochs: int,
        limit: int | None = None,
        cap: CostCap | None = None,
        at_once: int = NO_LIMIT,
    ) -> Leased:
        """Lease the next (sample, epoch) that wait.

        Args:
            most: How many at most.
            epochs: Only epochs up to this one.
            limit: Only so many samples, the first ones; None = all.
            cap: What the run may cost; each lease reserves a part of it. None = anything.
            at_once: How many leases all programs together may hold; each of them gets an equal part.

        Raises:
            ConfigError: another program began a run of other settings before this one did.
        """
        bound = (epochs, NO_LIMIT if limit is None else limit)

        def run(db: sqlite3.Connection) -> Leased:
            # Looked at again with each lease, because another program may have begun another run since this
            # one prepared.
            if not has_settings(db, self._settings):
                raise ConfigError(
                    f"ledger {str(self._path)!r}: another program began another run here meanwhile; give "
                    "another directory"
                )
            now = read_time_ms(db)
            room = count_room(db, self._owner, len(self._open), at_once, now)
            keys, alone = self._choose_next(db, bound, min(most, room))
            leases: list[SampleLease] = []
            for key in keys:
                reserved: float | None = None
                if cap is not None:
                    answer = cap.reserve(read_spent_usd(db), sum_reserved_usd(db), find_stop_cost(db, key))
                    if answer == "wait":
                        break
                    if answer == "reached":
                        return Leased(leases, is_capped=True)
                    reserved = float(answer)
                leases.append(self._begin(db, key, reserved, now, alone=alone))
            return Leased(leases)

        return await self.do(run)

    def _choose_next(self, db: sqlite3.Connection, bound: Sequence[int], most: int) -> tuple[list[Key], bool]:
        """Return what this program works on next, and whether that is one suspect without neighbours.

        Suspects come first if it holds nothing; those that have failed alone before come last of all.
        """
        held, trials = len(self._open), len(self._trials & self._open)
        if not self._rules.may_lease(SampleRow(), held, trials, paused=is_paused(db)):
            return [], False
        is_free = self._rules.may_lease(SampleRow(suspect=True), held, trials)
        suspects = [] if not is_free else self._select_waiting(db, bound, NO_LIMIT, suspect=True)
        fresh = [key for key in suspects if not sample_row(db, key).failures]
        others = [] if fresh else self._select_waiting(db, bound, most, suspect=False)
        chosen = others or (fresh or suspects)[: min(most, choose_trial_size(len(fresh or suspects)))]
        is_trial = bool(suspects) and not others
        self._trials &= self._open
        return chosen, is_trial and len(chosen) == 1

    def _select_waiting(
        self, db: sqlite3.Connection, bound: Sequence[int], most: int, *, suspect: bool
    ) -> list[Key]:
        return select_next_samples(db, bound, most, suspect=suspect, chosen=self._chosen)

    def _begin(
        self, db: sqlite3.Connection, key: Key, reserved_usd: float | None, now: int, *, alone: bool
    ) -> SampleLease:
        self._made += 1
        lease_id = f"{self._owner} {self._made}"
        row = self._rules.lease(sample_row(db, key), lease_id, alone=alone)
        if row is None:
            raise ConfigError(f"sample {key[0]!r} was selected to be leased and does not wait")
        if row.suspect:
            self._trials.add(lease_id)
        put_sample(db, key, row)
        workspace = make_workspace_name(*key, row.attempts, lease_id)
        db.execute(
            "INSERT INTO attempts(lease_id, sample_id, epoch, number, owner, workspace, started_at_ms, "
            "beat_at_ms, reserved_usd, provenance, sample_timeout_s) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(lease_id, *key, row.attempts, self._owner, workspace, now, now, reserved_usd),
                *(self.provenance, self.sample_timeout_s),
            ),
        )
        self._open.add(lease_id)
        return SampleLease(lease_id, *key, row.attempts, workspace, reserved_usd, alone)

    async def commit(self, lease: SampleLease, result: AttemptResult, *, keeps: bool = False) -> bool:
        """Write the score of an attempt; False = the lease no longer counts, and nothing was written.

        Args:
            lease: The attempt's lease.
            result: What it is scored with.
            keeps: Whether its workspace stays.
        """

        def run(db: sqlite3.Connection) -> bool:
            key = (lease.sample_id, lease.epoch)
            # Read within the transaction: the lease may have been taken over since the attempt looked at it
            # last.
            row = self._rules.commit(sample_row(db, key), lease.lease_id, decided=result.decided)
            if row is None:
                return False
            now = read_time_ms(db)
            put_sample(db, key, row)
            made = MadeBy(row.revision, now, self.provenance)
            cost_usd = insert_score(db, key, lease.lease_id, result, made)
            outcome = "timeout" if result.status == "timeout" else "scored"
            judged = judge_use(each.metadata for each in result.scores.values())
            told = {
                "tree_id": result.tree_id,
                "error_kind": result.error_kind,
                "error": result.error,
                "raised": "\n".join(result.raised) or None,
                "failure": result.failure,
                "kept": keeps,
            }
            self._end(db, lease.lease_id, outcome, cost_usd + judged.cost_usd, now, told)
            return True

        return await self.do(run)

    async def give_back(
        self,
        lease: SampleLease,
        ending: Ending,
        retries: int,
        *,
        cost_usd: float = 0.0,
        error: BaseException | None = None,
        failure: FailureKind | None = None,
    ) -> bool:
        """End an attempt without a score; False = the lease no longer counts."""

        def run(db: sqlite3.Connection) -> bool:
            key = (lease.sample_id, lease.epoch)
            row = self._rules.give_back(sample_row(db, key), lease.lease_id, ending, retries)
            # Also for a lease that no longer counts: what it cost was spent.
            self._end(
                db,
                lease.lease_id,
                "cancelled" if ending == "cancelled" else "error",
                cost_usd,
                read_time_ms(db),
            )
            if error is not None:
                kind = FailureKind.CRASH if row is not None and row.state == "failed" else failure
                db.execute(
                    "UPDATE attempts SET failure = ?, error_kind = ?, error = ? WHERE lease_id = ?",
                    (kind, type(error).__name__, to_plain_text(error), lease.lease_id),
                )
            if row is None:
                return False
            put_sample(db, key, row)
            return True

        return await self.do(run)

    def _end(
        self,
        db: sqlite3.Connection,
        lease_id: str,
        outcome: str,
        cost_usd: float,
        now: int,
        told: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._open.discard(lease_id)
        end_attempt(db, lease_id, now, outcome, max(cost_usd, self.costs.get(lease_id, 0.0)), told)

    def _release(self, db: sqlite3.Connection) -> None:
        """Take back every lease of this program: whoever comes next works on their samples."""
        open_leases = db.execute(
            "SELECT lease_id, sample_id, epoch FROM attempts WHERE owner = ? AND ended_at_ms IS NULL",
            (self._owner,),
        ).fetchall()
        for lease_id, *key in open_leases:
            row = self._rules.give_back(sample_row(db, (key[0], key[1])), lease_id, "cancelled", 0)
            if row is not None:
                put_sample(db, (key[0], key[1]), row)
            self._end(db, lease_id, "cancelled", 0.0, read_time_ms(db))

    def note_tree(self, lease: SampleLease, tree_id: str) -> None:
        """Have the tree of an attempt written together with the next commit."""

        def run(db: sqlite3.Connection) -> None:
            db.execute("UPDATE attempts SET tree_id = ? WHERE lease_id = ?", (tree_id, lease.lease_id))

        self._thread.put(run)

    async def beat(self) -> set[str]:
        """Raise the beat of this program's leases now; return those that still count."""
        return await self.do(self._raise_beats)

    def _raise_beats(self, db: sqlite3.Connection) -> set[str]:
        """Raise the beat of this program's leases, and report those that somebody has taken over."""
        if not self._open:
            return set()
        # A copy: the event loop changes the table while this thread reads it.
        for lease_id, cost_usd in list(self.costs.items()):
            db.execute(
                "UPDATE attempts SET cost_usd = ? WHERE lease_id = ? AND ended_at_ms IS NULL",
                (cost_usd, lease_id),
            )
        found = db.execute(
            "UPDATE attempts SET beat = beat + 1, beat_at_ms = ? "
            "WHERE owner = ? AND ended_at_ms IS NULL RETURNING lease_id",
            (read_time_ms(db), self._owner),
        )
        held = {lease_id for (lease_id,) in found.fetchall()}
        lost, self._open = self._open - held, held
        for lease_id in lost:
            # On the loop, because the attempt's task belongs to it and this is the ledger's thread.
            self._thread.call_on_loop(self.on_lost, lease_id)
        return held

    async def list_others(self) -> dict[str, tuple[str, int]]:
        """Return the owner and the beat of each open lease of other programs."""

        def run(db: sqlite3.Connection) -> dict[str, tuple[str, int]]:
            found = db.execute(
                "SELECT lease_id, owner, beat FROM attempts WHERE ended_at_ms IS NULL AND owner != ?",
                (self._owner,),
            )
            return {lease_id: (owner, beat) for lease_id, owner, beat in found.fetchall()}

        return await self.do(run)

    async def take_over(self, beats: Mapping[str, int], retries: int) -> list[str]:
        """End leases whose holders are gone, each only if its beat is still the one that was seen.

        Returns:
            Names of the workspaces of those that were ended.
        """

        def run(db: sqlite3.Connection) -> list[str]:
            ended: list[str] = []
            for lease_id, beat in beats.items():
                found = db.execute(
                    "SELECT sample_id, epoch, workspace, beat FROM attempts "
                    "WHERE lease_id = ? AND ended_at_ms IS NULL",
                    (lease_id,),
                ).fetchone()
                if found is None:
                    continue
                sample_id, epoch, workspace, now_beat = found
                before = sample_row(db, (sample_id, epoch))
                row = self._rules.take_over(before, lease_id, now_beat, beat, retries)
                if row is None:
                    continue
                put_sample(db, (sample_id, epoch), row)
                self._end(db, lease_id, "lost", 0.0, read_time_ms(db))
                kind = FailureKind.CRASH if row.state == "failed" else FailureKind.DRIVER
                db.execute("UPDATE attempts SET failure = ? WHERE lease_id = ?", (kind, lease_id))
                ended.append(workspace)
            return ended

        return await self.do(run)

    async def find_ended_workspaces(self, workspaces: Sequence[str]) -> list[str]:
        """Return those workspaces whose attempts have ended and that nobody asked to keep."""

        def run(db: sqlite3.Connection) -> list[str]:
            query = "SELECT 1 FROM attempts WHERE workspace = ? AND NOT kept AND ended_at_ms IS NOT NULL"
            return [name for name in workspaces if db.execute(query, (name,)).fetchone() is not None]

        return await self.do(run)

    async def tally(self, epochs: int, limit: int | None = None) -> Tally:
        """Count the samples of a command by state."""
        bound = (epochs, NO_LIMIT if limit is None else limit)
        return await self.do(lambda db: count_states(db, bound, self._chosen))
