"""The ledger of a run: who works on which sample, the score of each, and what worked on the run."""
