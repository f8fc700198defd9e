"""Solving again: what has ended in a run waits again. An earlier score stays, with the reason."""

from __future__ import annotations

import sqlite3
from typing import Final

from sessiontree.bench.ledger.ledger_rules import LedgerRules
from sessiontree.bench.ledger.ledger_tables import put_sample, sample_row
from sessiontree.bench.ledger.run_log import supersede
from sessiontree.bench.suite.retry_choice import RetryChoice

_ENDED: Final = """
SELECT s.sample_id, s.epoch, s.state, coalesce(x.status, ''), x.passed
FROM samples s LEFT JOIN scores x USING (sample_id, epoch)
WHERE s.state IN ('scored', 'undecided', 'failed') ORDER BY s.position, s.epoch
"""


def mark_chosen(db: sqlite3.Connection, choice: RetryChoice) -> int:
    """Let samples wait again, and return how many (sample, epoch) do; programs take them at once.

    Args:
        db: The run's ledger.
        choice: Which samples.

    Raises:
        ConfigError: the run has no such sample; names near ones.
    """
    choice.check_samples({str(row[0]) for row in db.execute("SELECT DISTINCT sample_id FROM samples")})
    count = 0
    for sample_id, epoch, state, status, passed in db.execute(_ENDED).fetchall():
        ways = {state, status} | ({"not-passed"} if state == "scored" and not passed else set())
        if not choice.takes(sample_id, ways):
            continue
        row = LedgerRules().retry(sample_row(db, (sample_id, epoch)))
        if row is not None:
            how = f"its status was {status or state}" if choice.statuses else "it was named"
            supersede(db, (sample_id, epoch), f"retried: {how}")
            put_sample(db, (sample_id, epoch), row)
            count += 1
    return count
