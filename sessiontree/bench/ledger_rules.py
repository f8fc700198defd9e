"""The rules of a ledger: who may work on a sample, whose score counts, and when a lease has expired.

Pure: no clock, no file. ``ledger.py`` applies them to rows of SQLite; the tests apply them to values.

A lease belongs to one attempt at one (sample, epoch). A beat is a counter that the lease's holder raises. No
clock of one machine is compared with that of another: an observer counts, on its own monotonic clock, how
long it has seen a beat unchanged. So a clock that steps back or forward expires nothing and revives nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

State: TypeAlias = Literal["waiting", "leased", "scored", "failed"]
Ending: TypeAlias = Literal["error", "lost", "cancelled"]
"""How an attempt ended without a score: by an infrastructure error, with its holder, or taken back."""
LEASE_S: Final = 30.0
"""How long a beat may stay unchanged before somebody else takes the sample."""
BEAT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class SampleRow:
    """What the ledger knows of one (sample, epoch)."""

    state: State = "waiting"
    attempts: int = 0
    """How many leases it had."""
    failures: int = 0
    """How many of them ended by an infrastructure error or with their holder."""
    lease_id: str | None = None
    """The lease that counts; None = it has none."""


class LedgerRules:
    """Steps of one (sample, epoch). A step returns the new row, or None where it is refused."""

    def lease(self, row: SampleRow, lease_id: str) -> SampleRow | None:
        """Give a waiting sample to a holder."""
        if row.state != "waiting":
            return None
        return replace(row, state="leased", attempts=row.attempts + 1, lease_id=lease_id)

    def commit(self, row: SampleRow, lease_id: str) -> SampleRow | None:
        """Write the score of an attempt: only of the lease that counts, and only once."""
        if row.state != "leased" or row.lease_id != lease_id:
            return None
        return replace(row, state="scored")

    def give_back(self, row: SampleRow, lease_id: str, ending: Ending, retries: int) -> SampleRow | None:
        """End an attempt without a score; the sample waits again, or has failed too often."""
        if row.state != "leased" or row.lease_id != lease_id:
            return None
        if ending == "cancelled":  # nothing failed, however often something has before
            return replace(row, state="waiting", lease_id=None)
        failures = row.failures + 1
        state: State = "failed" if failures > retries else "waiting"
        return replace(row, state=state, failures=failures, lease_id=None)

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


class BeatWatch:
    """What one observer has seen of others' leases.

    Args:
        lease_s: How long a beat may stay unchanged.
    """

    def __init__(self, lease_s: float = LEASE_S) -> None:
        self._lease_s = lease_s
        self._seen: dict[str, tuple[int, float]] = {}

    def expired(self, beats: Mapping[str, int], now_s: float) -> dict[str, int]:
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
        if unspent <= 0 or need > unspent:
            return "wait" if reserved_usd > 0 else "reached"
        return "wait" if need > unspent - reserved_usd else need
