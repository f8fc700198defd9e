"""The history of a run: its commands, the code and settings that made its rows, and its earlier scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sessiontree.bench.ledger.ledger_schema import SCORE_COLUMNS
from sessiontree.bench.provenance.changes import MISSING, describe_changes
from sessiontree.bench.results.recorded_run import RecordedRun, parse_scores
from sessiontree.contracts.values.quick_dataclass import dataclass

_COMMIT_CHARS: Final = 12
_OWN: Final = frozenset({"clock_ms", "created_at_ms", "spent_usd", "ledger_version"})
"""Keys of the ledger's table ``run`` that are no settings."""
_PAST: Final = f"SELECT {', '.join(SCORE_COLUMNS)}, superseded_at_ms, reason FROM past_scores"  # noqa: S608


@dataclass(frozen=True, slots=True)
class PastScore:
    """A score that gave way to another one, or to another attempt."""

    sample_id: str
    epoch: int
    revision: int
    """Which score of its (sample, epoch) it was, from 1."""
    status: str
    passed: bool | None
    """None = it was undecided."""
    scores: Mapping[str, Mapping[str, Any]]
    tree_id: str
    made_by: str
    """``attempt`` or ``rescore``."""
    provenance: int | None
    """Number of the code and settings whose scorers gave it."""
    committed_at_ms: int
    superseded_at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A command that worked on a run."""

    number: int
    kind: str
    """``run`` or ``rescore``."""
    started_at_ms: int
    worked_ms: int
    """How long, on its own monotonic clock."""
    is_over: bool
    """Whether it came to its end; else it works, or was killed."""
    provenance: int | None
    circumstances: Mapping[str, Any]
    accepted: Sequence[str]
    """Changes of code and settings that it went on with."""
    scores: int
    """How many scores that count were made by its code and settings."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Code and settings that made rows of a run."""

    number: int
    facts: Mapping[str, str]
    """What they were, by name."""
    scores: int
    """How many scores that count they made."""


def list_past_scores(run: RecordedRun, sample_id: str | None = None) -> list[PastScore]:
    """Return the scores that gave way, of one sample or of all, oldest first."""
    where = "" if sample_id is None else " WHERE sample_id = ?"
    values = () if sample_id is None else (sample_id,)
    return [
        PastScore(
            row["sample_id"],
            row["epoch"],
            row["revision"],
            row["status"],
            None if row["passed"] is None else bool(row["passed"]),
            parse_scores(row["scores"]),
            row["tree_id"] or "",
            row["made_by"],
            row["provenance"],
            row["committed_at_ms"],
            row["superseded_at_ms"],
            row["reason"],
        )
        for row in run.read_named_rows(f"{_PAST}{where} ORDER BY sample_id, epoch, revision", *values)
    ]


def list_commands(run: RecordedRun) -> list[CommandRecord]:
    """Return the commands that worked on a run, in their order."""
    rows = run.read_named_rows(
        "SELECT c.*, (SELECT count(*) FROM scores x WHERE x.provenance = c.provenance) AS scores "
        "FROM commands c ORDER BY number"
    )
    return [
        CommandRecord(
            row["number"],
            row["kind"],
            row["started_at_ms"],
            row["worked_ms"],
            row["ended_at_ms"] is not None,
            row["provenance"],
            json.loads(row["circumstances"]),
            json.loads(row["accepted"]),
            row["scores"],
        )
        for row in rows
    ]


def list_provenances(run: RecordedRun) -> list[Provenance]:
    """Return the code and settings of a run, in their order."""
    rows = run.rows(
        "SELECT p.number, p.facts, (SELECT count(*) FROM scores x WHERE x.provenance = p.number) "
        "FROM provenance p ORDER BY p.number"
    )
    return [Provenance(number, json.loads(facts), count) for number, facts, count in rows]


def read_last_circumstances(run: RecordedRun) -> dict[str, Any]:
    """Return where and how the last command that opened trees worked; empty = no such command was logged."""
    found = run.rows(
        "SELECT circumstances FROM commands WHERE kind != 'rescore' ORDER BY number DESC LIMIT 1"
    )
    return dict(json.loads(found[0][0])) if found else {}


def sum_worked_ms(run: RecordedRun) -> int:
    """Return how long programs worked on a run: the time between commands does not count.

    A command's time is measured on its own monotonic clock, so a wall clock that steps adds nothing. Commands
    that worked at the same time count once.
    """
    spans = run.rows("SELECT started_at_ms, started_at_ms + worked_ms FROM commands ORDER BY 1")
    total, end = 0, 0
    for begin, until in spans:
        total += max(0, until - max(begin, end))
        end = max(end, until)
    return int(total)


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """Where the rows of a run come from."""

    tags: tuple[str, ...]
    metadata: dict[str, Any]
    commands: tuple[CommandRecord, ...]
    provenances: tuple[Provenance, ...]
    superseded: int
    """How many scores gave way to others, or to another attempt."""

    def lines(self) -> list[str]:
        """Return what is said of it, one line each."""
        lines = []
        if self.tags or self.metadata:
            noted = [f"{name}={value}" for name, value in self.metadata.items()]
            lines.append(f"tags: {', '.join([*self.tags, *noted])}")
        if self.commands:
            lines.append(self._format_origin(self.commands[-1]))
        making = [each for each in self.provenances if each.scores]
        if len(making) > 1:
            counts = ", ".join(f"{each.scores:,} by code {each.number}" for each in making)
            changes = describe_changes(making[0].facts, making[-1].facts)
            lines.append(f"scores were made by different code: {counts}; what differs: {'; '.join(changes)}")
        if self.superseded:
            lines.append(f"history: {self.superseded:,} earlier scores gave way; each with its reason")
        return lines

    def _format_origin(self, last: CommandRecord) -> str:
        known, facts = last.circumstances, self.provenances[-1].facts if self.provenances else {}
        commit = str(known.get("git_commit", ""))[:_COMMIT_CHARS]
        dirty = ", with changes that are not committed" if known.get("git_dirty") else ""
        when = datetime.fromtimestamp(last.started_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        parts = [
            f"sessiontree {facts.get('sessiontree', '?')}",
            f"Python {facts.get('python', '?')}",
            *(f"{name.partition(' ')[2]} {facts[name]}" for name in facts if name.startswith("package ")),
            f"git commit {commit}{dirty}" if commit else "no git commit",
        ]
        return f"made with {', '.join(parts)}; last command {when} on {known.get('host', '?')}"


def find_origin(run: RecordedRun) -> RunOrigin:
    """Return where the rows of a run come from. Later metadata of a name wins."""
    commands = list_commands(run)
    tags: dict[str, None] = {}
    metadata: dict[str, Any] = {}
    for each in commands:
        tags |= dict.fromkeys(each.circumstances.get("tags", ()))
        metadata |= each.circumstances.get("metadata", {})
    ((superseded,),) = run.rows("SELECT count(*) FROM past_scores")
    return RunOrigin(tuple(tags), metadata, tuple(commands), tuple(list_provenances(run)), superseded)


def run_differences(first: RecordedRun, second: RecordedRun) -> list[str]:
    """Return what differs between two runs besides their scores, in words: ``model was … and is …``.

    Code and settings are those of the last commands.
    """
    told = []
    for run in (first, second):
        codes = list_provenances(run)
        last = list_commands(run)[-1:]
        facts = {name: value for name, value in run.settings.items() if name not in _OWN}
        for command in last:
            known = command.circumstances
            facts |= next((dict(each.facts) for each in codes if each.number == command.provenance), {})
            facts["git commit"] = _commit(known) or MISSING
        told.append(facts)
    return describe_changes(*told)


def _commit(circumstances: Mapping[str, Any]) -> str:
    dirty = " with changes" if circumstances.get("git_dirty") else ""
    return f"{str(circumstances.get('git_commit', ''))[:_COMMIT_CHARS]}{dirty}"
