"""A run as its directory holds it: finished, running or interrupted. Everything here only reads.

The ledger says what became of each (sample, epoch), attempt and score; the journals below ``state/`` hold the
facts of the trees.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from sessiontree import ConfigError, JournalRecord, Usage
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.contracts.values.quick_dataclass import dataclass

LEDGER: Final = "ledger.sqlite"
STATE: Final = "state"
RESULTS: Final = "results"
"""The directory of the Parquet files, below the run's."""
"""The directory of the trees' journals, below the run's."""
ANSWERED: Final = frozenset({"completed", "empty"})
"""How an attempt ends whose model replied to the end, if only by saying nothing."""
_WAIT_S: Final = 5.0
_NEAR: Final = 3
_SHOWN: Final = 100
_ALL: Final = 2**62
_KIND: Final = '{"kind":"'
_OF_MODELS: Final = frozenset({"opened", "model_changed", "usage_charged", "session_ended"})
"""Kinds of facts that name a session's model or hold its usage."""


@dataclass(frozen=True, slots=True)
class RunCounts:
    """How many (sample, epoch) pairs are in each state."""

    waiting: int
    leased: int
    """An attempt runs, or its process died and nobody took it over yet."""
    scored: int
    failed: int
    """Given up: lost again and again although nothing else ran; nothing says whether they pass."""
    undecided: int = 0
    """Ended in an error of the solver or a scorer; nothing says whether they pass."""

    @property
    def total(self) -> int:
        """All pairs of the run."""
        return self.waiting + self.leased + self.scored + self.failed + self.undecided

    @property
    def coverage(self) -> float:
        """Share of all pairs that is scored; 1 for a run without pairs."""
        return self.scored / self.total if self.total else 1.0

    @property
    def unfinished(self) -> int:
        """Pairs that a run still has to work on."""
        return self.waiting + self.leased


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """The committed score of one (sample, epoch), with what its whole tree used."""

    sample_id: str
    epoch: int
    tree_id: str
    status: str
    """``completed``, ``empty``, ``timeout``, ``budget``, or ``error``, which decides nothing."""
    passed: bool | None
    """None = undecided."""
    scores: Mapping[str, Mapping[str, Any]]
    """By name: ``value``, ``passed``, ``answer``, ``explanation``, ``metadata``; none if undecided."""
    wall_ms: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    turns: int
    tool_calls: int
    sessions: int
    output: str
    committed_at_ms: int
    error_kind: str
    """Empty = no error."""
    error: str
    raised: str
    """Where the suite's own code raised it: lines of ``path:line in function: source``."""
    revision: int
    """Which score of its (sample, epoch) it is, from 1."""
    made_by: str
    """``attempt``, or ``rescore``: scorers judged again what was kept."""
    provenance: int | None
    """Number of the code and settings whose scorers gave it."""
    solver_provenance: int | None
    """Number of those that solved the sample."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt at a (sample, epoch)."""

    sample_id: str
    epoch: int
    number: int
    """Which try, from 1."""
    lease_id: str
    owner: str
    """The process that held the lease."""
    tree_id: str
    """Empty = it opened no tree."""
    workspace: str
    started_at_ms: int
    ended_at_ms: int | None
    """None = it runs, or its process died."""
    outcome: str
    """``scored``, ``error``, ``lost``, ``timeout`` or ``cancelled``; empty = not ended."""
    error_kind: str
    error: str


_SCORED = """
SELECT x.sample_id, x.epoch, coalesce(x.tree_id, ''), x.status, x.passed, x.scores, coalesce(x.wall_ms, 0),
    coalesce(x.input_tokens, 0), coalesce(x.output_tokens, 0), coalesce(x.cost_usd, 0.0),
    coalesce(x.turns, 0), coalesce(x.tool_calls, 0), coalesce(x.sessions, 0), coalesce(x.output, ''),
    x.committed_at_ms, iif(x.made_by = 'rescore', '', coalesce(a.error_kind, '')),
    iif(x.made_by = 'rescore', '', coalesce(a.error, '')),
    iif(x.made_by = 'rescore', '', coalesce(a.raised, '')), x.revision, x.made_by, x.provenance, a.provenance
FROM samples s JOIN scores x USING (sample_id, epoch) LEFT JOIN attempts a ON a.lease_id = x.lease_id
"""
_ATTEMPTS = """
SELECT a.sample_id, a.epoch, a.number, a.lease_id, coalesce(a.owner, ''), coalesce(a.tree_id, ''),
    coalesce(a.workspace, ''), a.started_at_ms, a.ended_at_ms, coalesce(a.outcome, ''),
    coalesce(a.error_kind, ''), coalesce(a.error, '')
FROM attempts a
"""


class RecordedRun:
    """Reads the ledger of one run. A run may go on meanwhile; each call reads what is committed then.

    Args:
        run_dir: The run's directory.

    Raises:
        ConfigError: it holds no run, or the ledger can't be read.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.run_dir = make_absolute(run_dir, "the run's directory")
        """Absolute path of the run's directory."""
        self._ledger = self.run_dir / LEDGER
        if not self._ledger.is_file():
            raise ConfigError(
                f"{str(self.run_dir)!r} holds no run: it has no {LEDGER}; give the directory that "
                "`sessiontree bench run` was given"
            )
        self.settings: dict[str, str] = {
            str(key): str(value) for key, value in self.rows("SELECT key, value FROM run")
        }
        """What the ledger says of the whole run, such as ``suite`` and ``model``."""

    @property
    def state_dir(self) -> Path:
        """Where the journals of its trees are."""
        return self.run_dir / STATE

    @property
    def suite(self) -> str:
        """Name of the suite."""
        return self.settings.get("suite", "")

    @property
    def model(self) -> str:
        """Name of the model that was chosen for the run; empty = the suite's own choice."""
        return self.settings.get("model", "")

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that reads the ledger.

        Raises:
            ConfigError: the ledger can't be read, or is not one.
        """
        with self._connect() as connection:
            return connection.execute(statement, values).fetchall()

    def read_named_rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """Return the rows of a statement that reads the ledger, each by the names of its columns.

        Raises:
            ConfigError: the ledger can't be read, or is not one.
        """
        with self._connect() as connection:
            found = connection.execute(statement, values)
            names = [each[0] for each in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def counts(self) -> RunCounts:
        """Return how many (sample, epoch) pairs are in each state."""
        found = dict(self.rows("SELECT state, count(*) FROM samples GROUP BY state"))
        states = ("waiting", "leased", "scored", "failed", "undecided")
        return RunCounts(*(int(found.get(state, 0)) for state in states))

    def scored(self, sample_id: str | None = None) -> Iterator[ScoredSample]:
        """Yield what attempts committed, in the suite's order: scores, and ends that decide nothing.

        Args:
            sample_id: Only of this sample; None = of all.
        """
        chosen = "" if sample_id is None else " WHERE s.sample_id = ?"
        values = () if sample_id is None else (sample_id,)
        for row in self.read_rows(f"{_SCORED}{chosen} ORDER BY s.position, s.epoch", *values):
            columns = [*row]
            columns[4:6] = None if row[4] is None else bool(row[4]), parse_scores(row[5])
            yield ScoredSample(*columns)

    def attempts(self, sample_id: str) -> list[AttemptRecord]:
        """Return the attempts at a sample, epoch by epoch in their order."""
        rows = self.rows(f"{_ATTEMPTS} WHERE a.sample_id = ? ORDER BY a.epoch, a.number", sample_id)
        return [AttemptRecord(*row) for row in rows]

    def failed(self, first: int = 0, last: int = _ALL) -> list[AttemptRecord]:
        """Return the last attempt at each pair that was given up, of a range of samples' positions."""
        found: dict[tuple[str, int], AttemptRecord] = {}
        for row in self.rows(
            f"{_ATTEMPTS} JOIN samples s USING (sample_id, epoch)"
            " WHERE s.state = 'failed' AND s.position BETWEEN ? AND ? ORDER BY s.position, s.epoch, a.number",
            first,
            last,
        ):
            attempt = AttemptRecord(*row)
            found[attempt.sample_id, attempt.epoch] = attempt
        return list(found.values())

    def list_unscored_attempts(self, first: int, last: int) -> list[AttemptRecord]:
        """Return the attempts whose tree gave no score, of a range of samples' positions."""
        return [
            AttemptRecord(*row)
            for row in self.rows(
                f"{_ATTEMPTS} JOIN samples s USING (sample_id, epoch)"
                " LEFT JOIN scores x USING (sample_id, epoch)"
                " WHERE s.position BETWEEN ? AND ? AND a.tree_id IS NOT NULL"
                " AND a.tree_id IS NOT x.tree_id ORDER BY s.position, s.epoch, a.number",
                first,
                last,
            )
        ]

    def find_last_position(self) -> int:
        """Return the position of the last sample in the suite, from 0; -1 = the run has no samples."""
        return int(self.rows("SELECT coalesce(max(position), -1) FROM samples")[0][0])

    def require_sample(self, sample_id: str) -> None:
        """Check that a sample is one of the run's.

        Raises:
            ConfigError: it is not; names similar ids.
        """
        if self.rows("SELECT 1 FROM samples WHERE sample_id = ? LIMIT 1", sample_id):
            return
        known = [str(row[0]) for row in self.rows("SELECT DISTINCT sample_id FROM samples")]
        raise ConfigError(
            f"run {str(self.run_dir)!r} of suite {self.suite!r} has no sample {sample_id!r}"
            f"{suggest_similar(sample_id, known)}"
        )

    def read_rows(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement that reads the ledger, without holding all of them.

        Raises:
            ConfigError: the ledger can't be read, or is not one.
        """
        with self._connect() as connection:
            yield from connection.execute(statement, values)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(_open(self._ledger)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise ConfigError(
                f"the ledger {str(self._ledger)!r} can't be read: {error}; if a run writes it, try again, "
                "else restore it from a backup"
            ) from error


def _open(path: Path) -> sqlite3.Connection:
    address = f"{path.as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=_WAIT_S, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM samples LIMIT 1")
    except sqlite3.OperationalError:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size > 0:
            raise
        # without write permission, only a ledger that nobody writes can be read
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None)
    return connection


def suggest_similar(wanted: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: names like it, or where to find them."""
    names = sorted(known)
    near = [name for name in names if wanted and name.startswith(wanted)][:_NEAR]
    near = near or get_close_matches(wanted, names, n=_NEAR, cutoff=0.5)
    if not near:
        return "; `sessiontree bench report` and the table `samples` name its samples"
    return f"; did you mean {' or '.join(repr(each) for each in near)}?"


def parse_scores(text: str | None) -> dict[str, dict[str, Any]]:
    """Return the scores of a ledger's row by name, in their order, each with all its members.

    Raises:
        ConfigError: it is not an object of scores.
    """
    try:
        found = {str(name): _check_score(score) for name, score in json.loads(text or "{}").items()}
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"the ledger holds scores that can't be read: {str(text)[:_SHOWN]!r}: {error}; restore it from a "
            "backup"
        ) from error
    return found


_MEMBERS: Final[Mapping[str, type]] = {
    "value": float,
    "passed": bool,
    "answer": str,
    "explanation": str,
    "metadata": dict,
}
"""The members of a score in a ledger, each with its type."""


def _check_score(score: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: score[name] for name in _MEMBERS}
    for name, kind in _MEMBERS.items():
        if not isinstance(found[name], kind):
            raise ValueError(f"{name} is {found[name]!r}")
    return found


def parse_fact_kind(text: str) -> str:
    """Return the kind of a journaled fact from its text; empty if the text does not begin as a fact."""
    if not text.startswith(_KIND):
        return ""
    return text[len(_KIND) : text.find('"', len(_KIND))]


def sum_usage_by_model(records: Iterable[JournalRecord]) -> dict[str, tuple[Usage, int]]:
    """Return what a tree's sessions used according to its facts, and how many sessions, by model.

    A session's usage counts for the model that it had when the usage was charged.
    """
    models: dict[str, str] = {}
    used: dict[str, Usage] = defaultdict(Usage)
    sessions: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if parse_fact_kind(record.text) not in _OF_MODELS:
            continue
        for fact in record.to_json_parts():
            if fact["kind"] in {"opened", "model_changed"}:
                models[record.session] = str(fact["model"])
                sessions[models[record.session]].add(record.session)
            elif fact["kind"] == "usage_charged":
                model = models.get(str(fact["session"]), "")
                used[model] += Usage.from_wire(fact["usage"])
                sessions[model].add(str(fact["session"]))
    return {model: (used[model], len(names)) for model, names in sessions.items()}
