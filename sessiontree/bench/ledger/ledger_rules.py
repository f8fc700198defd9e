"""The rules of a ledger: who may work on a sample, whose score counts, and when a lease has expired.

Pure: no clock, no file. ``ledger.py`` applies them to rows of SQLite; the tests apply them to values.

A lease belongs to one attempt at one (sample, epoch). A beat is a counter that the lease's holder raises. No
clock of one machine is compared with that of another: an observer counts, on its own monotonic clock, how
long it has seen a beat unchanged. So a clock that steps back or forward expires nothing and revives nothing.

When a process dies, every sample that it held is lost, and at most one of them is to blame. So a loss that a
sample shares with others makes it a suspect and is charged to nobody. Suspects are tried again without
neighbours: a loss in such a trial is the sample's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from sessiontree.contracts.values.quick_dataclass import dataclass

State: TypeAlias = Literal["waiting", "leased", "scored", "undecided", "failed"]
Ending: TypeAlias = Literal["error", "shared", "lost", "run", "cancelled"]
"""How an attempt ended without a score: by the loss of what it alone used, of what it shared with others,
with its holder, by something that is certainly not the sample's, or taken back."""
LEASE_S: Final = 30.0
"""How long a beat may stay unchanged before somebody else takes the sample."""
BEAT_S: Final = 5.0
TRIAL_ROUNDS: Final = 16
"""Up to so many suspects are tried one by one; of more, so many groups are made."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """What the ledger knows of one (sample, epoch)."""

    state: State = "waiting"
    attempts: int = 0
    """How many leases it had."""
    failures: int = 0
    """How many of them were lost by the sample's own doing, as far as anybody can know."""
    lease_id: str | None = None
    """The lease that counts; None = it has none."""
    revision: int = 0
    """How many scores it ever had; the last one counts while the state is ``scored`` or ``undecided``."""
    suspect: bool = False
    """Whether it was lost together with others, and may be the reason."""
    alone: bool = False
    """Whether the holder of its lease works on nothing else."""


class LedgerRules:
    """Steps of one (sample, epoch). A step returns the new row, or None where it is refused."""

    def may_lease(self, row: SampleRow, held: int, trials: int, *, paused: bool = False) -> bool:
        """Whether a program may take a sample.

        Nobody takes one while the run is paused. A suspect needs a program that holds nothing; whoever holds
        a suspect takes nothing else.

        Args:
            row: What is known of the sample.
            held: How many leases the program holds.
            trials: How many of them are of suspects.
            paused: Whether somebody has paused the run.
        """
        return not paused and trials == 0 and (held == 0 or not row.suspect)

    def lease(self, row: SampleRow, lease_id: str, *, alone: bool = False) -> SampleRow | None:
        """Give a waiting sample to a holder.

        Args:
            row: What is known of it.
            lease_id: The new lease.
            alone: Whether the holder works on nothing else meanwhile, since the sample is a suspect.
        """
        if row.state != "waiting":
            return None
        return replace(row, state="leased", attempts=row.attempts + 1, lease_id=lease_id, alone=alone)

    def commit(self, row: SampleRow, lease_id: str, *, decided: bool = True) -> SampleRow | None:
        """Write the score of an attempt: only of the lease that counts, and only once.

        Args:
            row: What is known of the sample.
            lease_id: The attempt's lease.
            decided: Whether the attempt says if the sample passes; else the sample is undecided.
        """
        if row.state != "leased" or row.lease_id != lease_id:
            return None
        state: State = "scored" if decided else "undecided"
        return replace(row, state=state, suspect=False, alone=False, revision=row.revision + 1)

    def rescore(self, row: SampleRow, revision: int, *, decided: bool = True) -> SampleRow | None:
        """Let a score give way to one of other scorers, unless another one came since it was read.

        Args:
            row: What is known of the sample.
            revision: The score that was read.
            decided: Whether the scorers say if the sample passes.
        """
        if row.state not in {"scored", "undecided"} or row.revision != revision:
            return None
        return replace(row, state="scored" if decided else "undecided", revision=row.revision + 1)

    def retry(self, row: SampleRow) -> SampleRow | None:
        """Let a sample that has ended wait again; what it failed by before is forgiven."""
        if row.state not in {"scored", "undecided", "failed"}:
            return None
        return replace(row, state="waiting", failures=0, lease_id=None, suspect=False)

    def give_back(self, row: SampleRow, lease_id: str, ending: Ending, retries: int) -> SampleRow | None:
        """End an attempt without a score; the sample waits again, or has failed too often."""
        if row.state != "leased" or row.lease_id != lease_id:
            return None
        ended = replace(row, state="waiting", lease_id=None, alone=False)
        if ending in {"cancelled", "run"}:  # nothing of the sample failed, however often something has before
            return ended
        if ending in {"shared", "lost"} and not row.alone:
            return replace(ended, suspect=True)
        failures = row.failures + 1
        state: State = "failed" if failures > retries else "waiting"
        return replace(ended, state=state, failures=failures)

    def beat(self, row: SampleRow, lease_id: str, beat: int) -> int | None:
        """Raise the beat of a lease, if it still counts."""
        return beat + 1 if row.state == "leased" and row.lease_id == lease_id else None

    def take_over(
        self, row: SampleRow, lease_id: str, beat: int, seen_beat: int, retries: int
    ) -> SampleRow | None:
        """End the lease of a holder that is gone, unless it has raised its beat since that was seen."""
        return None if beat != seen_beat else self.give_back(row, lease_id, "lost", retries)

    def reopen(self, row: SampleRow, retries: int) -> SampleRow | None:
        """Let a failed sample wait again where a run allows more retries than before."""
        if row.state != "failed" or row.failures > retries:
            return None
        return replace(row, state="waiting")


def choose_trial_size(suspects: int) -> int:
    """Return how many suspects are tried together: one, unless a large program died.

    A group whose members survive is cleared at once; the members of one that does not are fewer suspects, so
    that their next groups are smaller. One sample among a thousand is found alone in the third round.
    """
    return max(1, suspects // TRIAL_ROUNDS)


class HeartbeatMonitor:
    """What one observer has seen of others' leases.

    Args:
        lease_s: How long a beat may stay unchanged.
    """

    def __init__(self, lease_s: float = LEASE_S) -> None:
        self._lease_s = lease_s
        self._seen: dict[str, tuple[int, float]] = {}

    def find_expired(self, beats: Mapping[str, int], now_s: float) -> dict[str, int]:
        """Take in the beats of all open leases; return those that have not changed for too long.

        Args:
            beats: Beat of each open lease of other holders.
            now_s: The observer's monotonic clock.

        Returns:
            The expired leases with the beat that was seen: a lease is taken over only at this beat.
        """
        kept: dict[str, tuple[int, float]] = {}
        for lease_id, beat in beats.items():
            before = self._seen.get(lease_id)
            # The observer's own clock counts from when it saw this beat, so no clock of two machines is
            # compared.
            kept[lease_id] = before if before is not None and before[0] == beat else (beat, now_s)
        self._seen = kept
        return {
            lease_id: beat for lease_id, (beat, since_s) in kept.items() if now_s - since_s >= self._lease_s
        }


@dataclass(frozen=True, slots=True)
class CostCap:
    """The most that a run may spend. Every lease reserves its part before its tree opens."""

    max_usd: float
    sample_usd: float | None
    """What one sample may cost by the suite's budget; None = the suite has none."""
    concurrency: int
    """How many attempts of one program run at a time."""

    def reserve(
        self, spent_usd: float, reserved_usd: float, stopped_usd: float = 0.0
    ) -> float | Literal["wait", "reached"]:
        """Return what the next attempt reserves.

        Args:
            spent_usd: What ended attempts have cost.
            reserved_usd: What open attempts hold.
            stopped_usd: The cost at which this cap stopped an earlier attempt at the same sample.

        Returns:
            US dollars; ``wait`` = open attempts may give back enough; ``reached`` = nothing will.
        """
        unspent = self.max_usd - spent_usd
        if self.sample_usd is not None:
            need = self.sample_usd
        else:
            # Half of what is left is shared out, so that a second program finds something.
            need = max(unspent / (2 * self.concurrency), 2 * stopped_usd)
            if need > unspent > stopped_usd:
                need = unspent
        # Open attempts may cost less than they hold, so the run ends only when no attempt is open.
        if unspent <= 0 or need > unspent:
            return "wait" if reserved_usd > 0 else "reached"
        return "wait" if need > unspent - reserved_usd else need
