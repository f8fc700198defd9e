"""Leases: the right to work on a sample, and how many samples a run has in which state."""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.contracts.values.quick_dataclass import dataclass


class CostCapReached(Exception):
    """An attempt was stopped because the money that the run had reserved for it is used up.

    Args:
        sample_id: Its sample.
        reserved_usd: What was reserved, in US dollars.
    """

    def __init__(self, sample_id: str, reserved_usd: float) -> None:
        super().__init__(sample_id, reserved_usd)
        self.sample_id = sample_id
        self.reserved_usd = reserved_usd

    def __str__(self) -> str:
        """Say what was reserved and what becomes of the sample."""
        return (
            f"sample {self.sample_id!r} used up the ${self.reserved_usd:.4g} that the run had reserved for "
            "it; it is not scored and waits again"
        )


@dataclass(frozen=True, slots=True)
class SampleLease:
    """The right to work on one (sample, epoch)."""

    lease_id: str
    sample_id: str
    epoch: int
    number: int
    """Which attempt it is, from 1."""
    workspace: str
    """Name of the attempt's directory."""
    reserved_usd: float | None = None
    """What it may cost; None = the run has no cap."""
    alone: bool = False
    """Whether its program works on nothing else meanwhile, since the sample is a suspect."""


@dataclass(frozen=True, slots=True)
class Leased:
    """The answer to a request for leases."""

    leases: Sequence[SampleLease]
    is_capped: bool = False
    """Whether more samples wait, and what is left of the run's money does not pay for them."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many (sample, epoch) are in which state, and what was spent."""

    waiting: int = 0
    leased: int = 0
    scored: int = 0
    undecided: int = 0
    """Ended in an error of the solver or a scorer: nothing says whether they pass."""
    failed: int = 0
    """Lost again and again although nothing else ran: nothing says whether they pass."""
    passed: int = 0
    suspects: int = 0
    """How many of those that wait are tried without neighbours, because a process died with them."""
    cost_usd: float = 0.0

    @property
    def total(self) -> int:
        """All of them."""
        return self.waiting + self.leased + self.scored + self.undecided + self.failed

    @property
    def coverage(self) -> float:
        """Share of all that is scored; 1 if nothing is to be scored."""
        return self.scored / self.total if self.total else 1.0
