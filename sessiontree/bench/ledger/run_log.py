"""The log in a ledger: commands that worked on the run, provenance of its rows, controls, and samples.

Every function runs inside a transaction of the ledger.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sessiontree import ConfigError
from sessiontree.bench.ledger.ledger_rules import LedgerRules
from sessiontree.bench.ledger.ledger_schema import SCORE_COLUMNS
from sessiontree.bench.ledger.ledger_tables import (
    Key,
    has_begun,
    insert_row,
    put_sample,
    read_time_ms,
    sample_row,
)
from sessiontree.bench.provenance.changes import describe_changes, is_scoring
from sessiontree.bench.suite.samples import SampleData
from sessiontree.contracts.values.quick_dataclass import dataclass

OF_TREES: Final = ("model ", "template ", "sample_timeout_s", "wall_timeout_s")
"""How the names of facts begin that a rescoring does not know."""
NAMED: Final = 5
"""How many samples an error names."""


@dataclass(frozen=True, slots=True)
class LoggedCommand:
    """A command in the log."""

    number: int
    provenance: int
    """Number of its provenance."""
    accepted: Sequence[str] = ()
    """Changes since the command before that it accepted, in words."""


@dataclass(frozen=True, slots=True)
class NewCommand:
    """A command that begins."""

    owner: str
    kind: str
    """``run`` or ``rescore``."""
    facts: Mapping[str, str]
    """Its provenance."""
    circumstances: Mapping[str, Any]
    accepts: bool = False
    """Whether it goes on with other code."""


def is_begun(db: sqlite3.Connection) -> bool:
    """Whether a command has ever entered a run here."""
    return db.execute("SELECT 1 FROM run WHERE key = 'created_at_ms'").fetchone() is not None


def begin_command(db: sqlite3.Connection, command: NewCommand) -> LoggedCommand:
    """Log a command.

    Raises:
        ConfigError: the run was made with other code or settings, and the command does not accept that; names
            what changed.
    """
    before, facts = _read_last_facts(db), dict(command.facts)
    if command.kind == "rescore":  # it opens no tree: what concerns only trees stays as it was
        facts = {name: value for name, value in (before or {}).items() if name.startswith(OF_TREES)} | facts
    changes = describe_changes(before, facts) if before is not None and has_begun(db) else []
    refused = [each for each in changes if command.kind != "rescore" or not is_scoring(each)]
    if refused and not command.accepts:
        raise ConfigError(
            f"the run was made with other code or settings: {'; '.join(refused)}; give another directory, or "
            "--accept-changes (accept_changes=True) to go on: each row says what made it"
        )
    number = _store_provenance(db, facts)
    row = {
        "owner": command.owner,
        "kind": command.kind,
        "provenance": number,
        "circumstances": json.dumps(command.circumstances, default=str),
        "accepted": json.dumps(changes),
        "started_at_ms": read_time_ms(db),
    }
    insert_row(db, "commands", row)
    (command_number,) = db.execute("SELECT max(number) FROM commands").fetchone()
    return LoggedCommand(int(command_number), number, changes)


def _read_last_facts(db: sqlite3.Connection) -> dict[str, str] | None:
    found = db.execute(
        "SELECT p.facts FROM commands c JOIN provenance p ON p.number = c.provenance "
        "ORDER BY c.number DESC LIMIT 1"
    ).fetchone()
    return None if found is None else json.loads(found[0])


def _store_provenance(db: sqlite3.Connection, facts: Mapping[str, str]) -> int:
    text = json.dumps(facts, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    db.execute(
        "INSERT OR IGNORE INTO provenance(digest, facts, at_ms) VALUES (?, ?, ?)",
        (digest, text, read_time_ms(db)),
    )
    (number,) = db.execute("SELECT number FROM provenance WHERE digest = ?", (digest,)).fetchone()
    return int(number)


def note_work(db: sqlite3.Connection, number: int, worked_ms: int, *, is_over: bool = False) -> None:
    """Note how long a command has worked, on its own monotonic clock."""
    ended = read_time_ms(db) if is_over else None
    db.execute(
        "UPDATE commands SET worked_ms = ?, ended_at_ms = ? WHERE number = ?", (worked_ms, ended, number)
    )


def put_controls(db: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    """Log what the programs of the run are to take over."""
    for name, value in values.items():
        insert_row(db, "controls", {"name": name, "value": json.dumps(value), "at_ms": read_time_ms(db)})


def read_controls(db: sqlite3.Connection, after: int = 0) -> dict[str, str]:
    """Return the controls that count, as JSON by name: the last of each name.

    Args:
        db: The ledger.
        after: Leave out those of the concurrency up to this number: they were for programs of that time.
    """
    rows = db.execute(
        "SELECT name, value FROM controls WHERE name != 'concurrency' OR number > ? ORDER BY number", (after,)
    )
    return dict(rows.fetchall())


def get_last_control(db: sqlite3.Connection) -> int:
    """Return the number of the last control; 0 = no command has set any."""
    (number,) = db.execute("SELECT coalesce(max(number), 0) FROM controls").fetchone()
    return int(number)


def supersede(db: sqlite3.Connection, key: Key, reason: str) -> None:
    """Move the score that counts of a (sample, epoch) to the past ones, with the reason."""
    db.execute(
        "INSERT INTO past_scores SELECT *, ?, ? FROM scores WHERE sample_id = ? AND epoch = ?",
        (read_time_ms(db), reason, *key),
    )
    db.execute("DELETE FROM scores WHERE sample_id = ? AND epoch = ?", key)


def rescore(db: sqlite3.Connection, key: Key, revision: int, changes: Mapping[str, Any], reason: str) -> bool:
    """Let a score give way to one of other scorers; False = another one came meanwhile, and nothing changed.

    Args:
        db: The ledger.
        key: The (sample, epoch).
        revision: The score that was read.
        changes: Columns of ``scores`` that differ: ``scores``, ``passed``, ``status`` and ``provenance``.
        reason: Why, for the history.
    """
    row = LedgerRules().rescore(sample_row(db, key), revision)
    if row is None:
        return False
    names = ", ".join(SCORE_COLUMNS)
    found = db.execute(f"SELECT {names} FROM scores WHERE sample_id = ? AND epoch = ?", key)  # noqa: S608
    before = dict(zip(SCORE_COLUMNS, found.fetchone(), strict=True))
    supersede(db, key, reason)
    put_sample(db, key, row)
    own = {"revision": row.revision, "committed_at_ms": read_time_ms(db), "made_by": "rescore"}
    insert_row(db, "scores", {**before, **changes, **own})
    return True


def check_samples(
    db: sqlite3.Connection, samples: Mapping[str, SampleData], *, is_whole: bool = True
) -> None:
    """Check that the samples of a run are those of the suite; others may have come since.

    Args:
        db: The ledger.
        samples: All samples of the suite by id.
        is_whole: Whether samples of the run that the suite lacks are refused.

    Raises:
        ConfigError: samples differ, or are missing; names them.
    """
    known = dict(db.execute("SELECT sample_id, digest FROM sample_data").fetchall())
    if not has_begun(db):
        db.execute("DELETE FROM sample_data")
        return
    differing = [name for name, digest in known.items() if name in samples and samples[name].digest != digest]
    if differing:
        parts = _list_differences(db, samples[differing[0]])
        raise ConfigError(
            f"{_format_names(differing)} of the run differ from those of the suite ({differing[0]!r}: "
            f"{parts}); a "
            "score belongs to the sample as it was: give the sample another id, or run in another directory"
        )
    missing = [name for name in known if name not in samples]
    if missing and is_whole:
        raise ConfigError(
            f"{_format_names(missing)} of the run are not in the suite; give the suite that has them, "
            "or run in "
            "another directory"
        )


def _list_differences(db: sqlite3.Connection, sample: SampleData) -> str:
    names = ("input", "target", "metadata", "files")
    held = db.execute(
        "SELECT input, target, metadata, files FROM sample_data WHERE sample_id = ?", (sample.id,)
    ).fetchone()
    now = (sample.input, sample.target, sample.metadata, sample.files)
    return ", ".join(name for name, was, is_ in zip(names, held, now, strict=True) if was != is_)


def _format_names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{len(names):,} samples ({', '.join(names[:NAMED])}{rest})"


def enter_samples(db: sqlite3.Connection, samples: Iterable[SampleData]) -> None:
    """Keep what the samples of a run hold, and their places in the suite."""
    for sample in samples:
        db.execute(
            "INSERT OR IGNORE INTO sample_data VALUES (?, ?, ?, ?, ?, ?)",
            (sample.id, sample.digest, sample.input, sample.target, sample.metadata, sample.files),
        )
        db.execute(
            "UPDATE samples SET position = ? WHERE sample_id = ? AND position != ?",
            (sample.position, sample.id, sample.position),
        )


def replace_samples(db: sqlite3.Connection, samples: Iterable[SampleData]) -> None:
    """Take over new targets and metadata of samples whose tasks are the same; a rescoring judges by them."""
    for sample in samples:
        db.execute(
            "UPDATE sample_data SET digest = ?, target = ?, metadata = ? "
            "WHERE sample_id = ? AND digest != ? AND input = ? AND files = ?",
            (
                *(sample.digest, sample.target, sample.metadata),
                *(sample.id, sample.digest, sample.input, sample.files),
            ),
        )
