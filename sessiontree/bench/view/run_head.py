"""What a run is and comes to: its origin, its answers and faults, the coverage, the rate with its interval.

The counts follow from the rows, one at a time; nothing here reads them all again.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from sessiontree import make_visible
from sessiontree.bench.ledger.failure_kinds import MEANINGS, FailureKind
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.results.run_history import sum_worked_ms
from sessiontree.bench.statistics.intervals import Estimate, compute_clustered_mean, compute_wilson_interval
from sessiontree.bench.view.run_rows import COLUMNS, OUTCOMES, parse_object
from sessiontree.view.markdown import make_lines_visible

LIVE_MS: Final = 60_000
"""A run is live while one of its attempts gave a sign of life within this time."""
PACE_MS: Final = 60_000
"""The pace is that of the scores of so long."""
RESAMPLES: Final = 2_000
WILSON: Final = "Wilson"
BOOTSTRAP: Final = "bootstrap over samples"
"""The interval where a sample has several epochs, which resemble each other."""
_OUTCOME, _KIND, _VALUES, _PASSES, _COST, _TOKENS = (
    COLUMNS.index(name) for name in ("outcome", "kind", "values", "passes", "cost_usd", "tokens")
)
MAX_CHARS: Final = 4_000
"""Longest text of one setting."""
MAX_TAGS: Final = 20
_OWN: Final = frozenset({"suite", "model", "ledger_version", "clock_ms", "spent_usd"})
"""What the ledger says of a run that is shown elsewhere, or means something to programs alone."""
_FIRST: Final = ("command_line", "git_commit", "git_dirty", "host")
_ANSWERS: Final = ("passed", "not passed")

Json = dict[str, Any]


class RunHead:
    """Counts rows as they come and change.

    Args:
        run: The run.
    """

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._origin = describe_origin(run)
        self._outcomes: Counter[str] = Counter()
        self._kinds: Counter[tuple[str, str]] = Counter()
        self._clusters: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        """By sample how many of its epochs passed and were scored."""
        self._scores: dict[int, list[float]] = defaultdict(lambda: [0, 0, 0.0])
        """By the place of a score how often it passed, how often it was given, and the sum of its values."""
        self._cost_usd = 0.0
        self._tokens = 0
        self._times: Json = {}
        self._rate = Estimate(None, None, None, 0)
        self._method = WILSON

    def count(self, sample_id: str, before: Sequence[Any] | None, now: Sequence[Any]) -> None:
        """Count a row instead of what it was."""
        if before is not None:
            self._add(sample_id, before, -1)
        self._add(sample_id, now, 1)

    def _add(self, sample_id: str, row: Sequence[Any], sign: int) -> None:
        outcome = row[_OUTCOME]
        self._outcomes[outcome] += sign
        self._kinds[outcome, row[_KIND]] += sign
        self._cost_usd += sign * (row[_COST] or 0.0)
        self._tokens += sign * (row[_TOKENS] or 0)
        if outcome not in _ANSWERS:
            return
        cluster = self._clusters[sample_id]
        cluster[0] += sign * (outcome == "passed")
        cluster[1] += sign
        for place, (value, is_pass) in enumerate(zip(row[_VALUES], row[_PASSES], strict=True)):
            if value is not None:
                score = self._scores[place]
                score[0] += sign * bool(is_pass)
                score[1] += sign
                score[2] += sign * value

    def refresh(self, *, is_moved: bool) -> bool:
        """Read the times; return whether the head is another one than before.

        Args:
            is_moved: Whether rows were counted since.
        """
        times = self._read_times()
        if not is_moved and times == self._times:
            return False
        self._times = times
        if is_moved:
            self._rate = self._estimate()
            self._origin = describe_origin(self._run)
        return True

    def _read_times(self) -> Json:
        now_ms = int(time.time() * 1000)
        ((began_ms, beat_ms),) = self._run.rows(
            "SELECT min(started_at_ms), max(CASE WHEN ended_at_ms IS NULL THEN beat_at_ms END) FROM attempts"
        )
        ((ended_ms, recent),) = self._run.rows(
            "SELECT max(committed_at_ms), total(committed_at_ms > ?) FROM scores", now_ms - PACE_MS
        )
        is_live = beat_ms is not None and beat_ms > now_ms - LIVE_MS
        since_ms = max(1, min(PACE_MS, now_ms - (began_ms or now_ms)))
        return {
            "began_ms": began_ms,
            "ended_ms": ended_ms,
            "is_live": is_live,
            "worked_ms": sum_worked_ms(self._run),
            "per_s": round(recent / since_ms * 1000, 3) if is_live else 0.0,
        }

    def _estimate(self) -> Estimate:
        clusters = [(passed, scored) for passed, scored in self._clusters.values() if scored]
        passed, scored = sum(each[0] for each in clusters), sum(each[1] for each in clusters)
        self._method = WILSON if scored == len(clusters) else BOOTSTRAP
        if self._method == WILSON:
            return compute_wilson_interval(passed, scored)
        values = [[1.0] * passed + [0.0] * (scored - passed) for passed, scored in clusters]
        return compute_clustered_mean(values, resamples=RESAMPLES)

    def to_json(self, names: Sequence[str]) -> Json:
        """Return the head as JSON.

        Args:
            names: Names of the scores.
        """
        counts = {name: self._outcomes[name] for name in OUTCOMES}
        total, scored = sum(counts.values()), sum(counts[name] for name in _ANSWERS)
        left = counts["running"] + counts["waiting"]
        pace = self._times.get("per_s") or 0.0
        return {
            **self._origin,
            **self._times,
            "left_s": left / pace if pace else None,
            "counts": counts,
            "total": total,
            "scored": scored,
            "coverage": scored / total if total else None,
            "rate": {"value": self._rate.value, "low": self._rate.low, "high": self._rate.high},
            "interval": self._method,
            "kinds": [
                [outcome, kind, count, MEANINGS[FailureKind(kind)] if kind in _KNOWN else ""]
                for (outcome, kind), count in self._kinds.most_common()
                if count and kind
            ],
            "scores": [[make_visible(name), *self._scores[place]] for place, name in enumerate(names)],
            "cost_usd": round(self._cost_usd, 9),
            "tokens": self._tokens,
        }


_KNOWN: Final = frozenset(FailureKind)


def describe_origin(run: RecordedRun) -> Json:
    """Return what a page says of a run: names, settings and origin; every text is visible and has a bound.

    The code and the circumstances are those of the last command that worked on it.
    """
    commands = run.rows(
        "SELECT c.kind, c.circumstances, p.facts FROM commands c "
        "LEFT JOIN provenance p ON p.number = c.provenance ORDER BY c.number"
    )
    _, given, facts = commands[-1] if commands else ("", None, None)
    circumstances, code = parse_object(given), parse_object(facts)
    tags = circumstances.pop("tags", None) or []
    settings = {name: value for name, value in run.settings.items() if name not in _OWN}
    ordered: dict[str, Any] = {name: circumstances.pop(name) for name in _FIRST if name in circumstances}
    if len(commands) > 1:
        ordered = {"commands": ", ".join(str(kind) for kind, _, _ in commands), **ordered}
    release = str(code.get("sessiontree", ""))
    return {
        "dir": _format_value(str(run.run_dir)),
        "suite": _format_value(run.suite),
        "model": _format_value(run.model),
        "release": f"sessiontree {_format_value(release)}" if release else "",
        "tags": [_format_value(each)[:60] for each in tags[:MAX_TAGS]] if isinstance(tags, list) else [],
        "settings": [
            [_format_value(name), _format_value(value)]
            for name, value in {**ordered, **circumstances, **settings, **code}.items()
            if value not in (None, "", [], {})
        ],
    }


def _format_value(value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = " ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return make_lines_visible(text[:MAX_CHARS])
