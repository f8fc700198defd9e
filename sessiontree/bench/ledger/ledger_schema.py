"""The columns of a ledger: the tables of the one SQLite file, and what each of their rows means.

``scores`` holds the score that counts of each (sample, epoch). A score that gives way to another one moves to
``past_scores`` with the reason; no score is overwritten or removed. ``commands`` holds what worked on the
run, where and when; ``provenance`` holds the code and settings that made rows. ``controls`` is a log: the
last row of a name counts.

Not here: the statements that change rows (``ledger_tables.py``).
"""

from __future__ import annotations

from typing import Final

SCORE_COLUMNS: Final = (
    "sample_id",
    "epoch",
    "revision",
    "lease_id",
    "tree_id",
    "scores",
    "passed",
    "status",
    "wall_ms",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "turns",
    "tool_calls",
    "sessions",
    "output",
    "committed_at_ms",
    "made_by",
    "provenance",
)
"""The columns of ``scores``, and the first ones of ``past_scores``, in their order."""

_SCORE: Final = """
  sample_id TEXT NOT NULL, epoch INTEGER NOT NULL, revision INTEGER NOT NULL DEFAULT 1,
  lease_id TEXT NOT NULL, tree_id TEXT, scores TEXT NOT NULL, passed INTEGER, status TEXT NOT NULL,
  wall_ms INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
  cost_usd REAL NOT NULL, turns INTEGER NOT NULL, tool_calls INTEGER NOT NULL, sessions INTEGER NOT NULL,
  output TEXT NOT NULL, committed_at_ms INTEGER NOT NULL, made_by TEXT NOT NULL DEFAULT 'attempt',
  provenance INTEGER"""
# revision: counts the scores of this (sample, epoch), from 1; made_by: 'attempt' or 'rescore';
# provenance: the code whose scorers gave the score; that of the solver is in ``attempts``

TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS run(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS samples(
  sample_id TEXT NOT NULL, epoch INTEGER NOT NULL, position INTEGER NOT NULL, state TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0, lease_id TEXT,
  revision INTEGER NOT NULL DEFAULT 0, suspect INTEGER NOT NULL DEFAULT 0,
  alone INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(sample_id, epoch));
CREATE INDEX IF NOT EXISTS samples_by_position ON samples(position);
CREATE INDEX IF NOT EXISTS samples_by_state ON samples(state, suspect, epoch, position);
CREATE TABLE IF NOT EXISTS sample_data(
  sample_id TEXT PRIMARY KEY, digest TEXT NOT NULL, input TEXT NOT NULL, target TEXT NOT NULL,
  metadata TEXT NOT NULL, files TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts(
  lease_id TEXT PRIMARY KEY, sample_id TEXT NOT NULL, epoch INTEGER NOT NULL, number INTEGER NOT NULL,
  owner TEXT NOT NULL, tree_id TEXT, workspace TEXT, started_at_ms INTEGER NOT NULL,
  beat INTEGER NOT NULL DEFAULT 0, beat_at_ms INTEGER NOT NULL, ended_at_ms INTEGER, outcome TEXT,
  error_kind TEXT, error TEXT, raised TEXT, failure TEXT, cost_usd REAL NOT NULL DEFAULT 0,
  reserved_usd REAL, kept INTEGER NOT NULL DEFAULT 0, provenance INTEGER,
  sample_timeout_s REAL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_by_workspace ON attempts(workspace);
CREATE INDEX IF NOT EXISTS attempts_open ON attempts(owner) WHERE ended_at_ms IS NULL;
CREATE INDEX IF NOT EXISTS attempts_of ON attempts(sample_id, epoch);
CREATE TABLE IF NOT EXISTS scores({_SCORE}, PRIMARY KEY(sample_id, epoch)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS past_scores({_SCORE}, superseded_at_ms INTEGER NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY(sample_id, epoch, revision)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions(
  sample_id TEXT NOT NULL, epoch INTEGER NOT NULL, lease_id TEXT NOT NULL, tree_id TEXT NOT NULL,
  session_id TEXT NOT NULL, kind TEXT NOT NULL, parent TEXT, agent TEXT, model TEXT, status TEXT NOT NULL,
  input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost_usd REAL NOT NULL,
  turns INTEGER NOT NULL, tool_calls INTEGER NOT NULL, PRIMARY KEY(tree_id, session_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS provenance(
  number INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, facts TEXT NOT NULL, at_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS commands(
  number INTEGER PRIMARY KEY, owner TEXT NOT NULL, kind TEXT NOT NULL, provenance INTEGER,
  circumstances TEXT NOT NULL, accepted TEXT NOT NULL DEFAULT '[]',
  started_at_ms INTEGER NOT NULL, worked_ms INTEGER NOT NULL DEFAULT 0,
  ended_at_ms INTEGER);
CREATE TABLE IF NOT EXISTS controls(
  number INTEGER PRIMARY KEY, name TEXT NOT NULL, value TEXT NOT NULL, at_ms INTEGER NOT NULL);
"""
# samples.revision: how many scores it ever had; suspect: lost together with others; alone: its lease is one
# without neighbours. scores.passed: NULL = undecided, and ``scores`` is empty.
# sample_data: its members are JSON.
# attempts.failure: why it did not end with an answer; a failure kind.
# provenance.facts: JSON object of what is compared before a run goes on, by name.
# commands.kind: 'run' or 'rescore'; circumstances: JSON object (command line, host, git commit,
# options, tags); accepted: JSON list of changes that were accepted; worked_ms: how long, on the program's
# monotonic clock. controls.name: 'paused', 'concurrency' or 'sample_timeout_s'; value: JSON.
