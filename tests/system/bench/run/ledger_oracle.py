"""A ledger in memory, which applies the rules to values: what the one on SQLite must agree with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sessiontree.bench.ledger.ledger_rules import Ending, LedgerRules, SampleRow


@dataclass
class OpenLease:
    """An attempt that has not ended."""

    key: str
    owner: str
    beat: int = 0


class MemoryLedger:
    """The same calls as :class:`sessiontree.bench.ledger.ledger.Ledger`, one after another.

    Args:
        keys: Its samples.
        retries: How many infrastructure errors a sample may have.
        rules: The rules.
    """

    def __init__(self, keys: Sequence[str], retries: int, rules: LedgerRules | None = None) -> None:
        self.rows = {key: SampleRow() for key in keys}
        self.open: dict[str, OpenLease] = {}
        self.keys: dict[str, str] = {}
        """The sample of every lease there ever was."""
        self.scores: dict[str, list[str]] = {key: [] for key in keys}
        """The leases that a sample's scores came from."""
        self.past: dict[str, list[tuple[int, str]]] = {key: [] for key in keys}
        """Scores that gave way: which one it was, and why."""
        self.is_paused = False
        self.believed: dict[str, tuple[str, bool]] = {}
        """Leases that programs believe to hold: whose, and whether the sample is a suspect."""
        self._retries = retries
        self._rules = rules or LedgerRules()

    def lease(self, owner: str) -> str | None:
        """Lease the first sample: suspects that never failed, then others, then the other suspects."""
        held = [suspect for name, suspect in self.believed.values() if name == owner]
        order = sorted(
            self.rows.items(), key=lambda item: (item[1].failures * 2 + 1) if item[1].suspect else 2
        )
        for key, row in order:
            lease_id = f"{owner} {len(self.keys)}"
            leased = self._rules.lease(row, lease_id, alone=row.suspect)
            if leased is not None and self._rules.may_lease(row, len(held), sum(held), paused=self.is_paused):
                self.rows[key] = leased
                self.open[lease_id] = OpenLease(key, owner)
                self.keys[lease_id] = key
                self.believed[lease_id] = owner, row.suspect
                return lease_id
        return None

    def beat(self, owner: str, leases: Sequence[str] = ()) -> set[str]:
        """Raise the beats of an owner's leases; those that it believes to hold are asked for by name."""
        held = set()
        for lease_id in leases or [name for name, each in self.open.items() if each.owner == owner]:
            row = self.rows[self.keys[lease_id]]
            lease = self.open.get(lease_id)
            beat = self._rules.beat(row, lease_id, 0 if lease is None else lease.beat)
            if beat is not None:
                held.add(lease_id)
                if lease is not None:
                    lease.beat = beat
        self.believed = {
            lease_id: each for lease_id, each in self.believed.items() if each[0] != owner or lease_id in held
        }
        return held

    def commit(self, lease_id: str, *, decided: bool = True) -> bool:
        """Write a score, or that nothing is decided."""
        key = self.keys[lease_id]
        row = self._rules.commit(self.rows[key], lease_id, decided=decided)
        if row is None:
            return False
        self.rows[key] = row
        self.scores[key].append(lease_id)
        self.open.pop(lease_id, None)
        self.believed.pop(lease_id, None)
        return True

    def retry(self, key: str) -> bool:
        """Let a sample that has ended wait again; its score gives way."""
        before = self.rows[key]
        row = self._rules.retry(before)
        if row is None:
            return False
        if self.scores[key]:
            self.past[key].append((before.revision, "retried"))
            self.scores[key].clear()
        self.rows[key] = row
        return True

    def rescore(self, key: str, revision: int) -> bool:
        """Let a score give way to one of other scorers."""
        row = self._rules.rescore(self.rows[key], revision)
        if row is None:
            return False
        self.past[key].append((self.rows[key].revision, "rescored"))
        self.rows[key] = row
        return True

    def give_back(self, lease_id: str, ending: Ending) -> bool:
        """End an attempt without a score."""
        key = self.keys[lease_id]
        row = self._rules.give_back(self.rows[key], lease_id, ending, self._retries)
        self.open.pop(lease_id, None)
        self.believed.pop(lease_id, None)
        if row is None:
            return False
        self.rows[key] = row
        return True

    def others(self, owner: str) -> dict[str, int]:
        """Return the beats of all other owners' open leases."""
        return {name: each.beat for name, each in self.open.items() if each.owner != owner}

    def take_over(self, seen: Mapping[str, int]) -> list[str]:
        """End the leases of holders that are gone."""
        ended = []
        for lease_id, beat in seen.items():
            lease = self.open.get(lease_id)
            if lease is None:
                continue
            row = self._rules.take_over(self.rows[lease.key], lease_id, lease.beat, beat, self._retries)
            if row is not None:
                self.rows[lease.key] = row
                del self.open[lease_id]
                ended.append(lease_id)
        return ended
