"""Running a suite: attempts, the ledger of leases and scores, and what the run shows."""
