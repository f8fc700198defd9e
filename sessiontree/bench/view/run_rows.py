"""The samples of a run as rows of a page: what each (sample, epoch) came to, read from the run's ledger.

Every text was made visible and cut; none of it is markup. What a row leaves out is read when a sample is
opened (``sample_content.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sessiontree import make_visible
from sessiontree.bench.ledger.failure_kinds import FailureKind, Fault
from sessiontree.bench.results.recorded_run import RecordedRun, parse_scores

COLUMNS: Final = (
    "id", "epoch", "position", "outcome", "status", "kind", "why", "values", "passes", "wall_ms", "cost_usd",
    "tokens", "sessions", "attempts", "tree", "input", "answer", "tags", "metadata",
)  # fmt: skip
OUTCOMES: Final = ("passed", "not passed", "infrastructure", "undecided", "running", "waiting")
"""What became of a (sample, epoch). The first two are answers, and scored; the next two are faults of the run
or of the suite's own code; the last two are not done."""
TEXT_BUDGET: Final = 12_000_000
"""Characters of text that the rows of a run may hold in all; a run of many samples shows less of each."""
SHORTEST: Final = 32
LONGEST: Final = 160
MAX_TAGS: Final = 12
MAX_MEMBERS: Final = 12
"""Most members of a sample's metadata that rows can be filtered by."""
MAX_MEMBER_CHARS: Final = 60

Json = dict[str, Any]

_ROWS: Final = """
SELECT s.sample_id, s.epoch, s.position, s.state, s.attempts, x.status, x.passed, x.scores, x.wall_ms,
    x.input_tokens + x.output_tokens, x.cost_usd, x.sessions, coalesce(x.tree_id, a.tree_id, ''),
    coalesce(x.output, ''), coalesce(a.failure, a.error_kind, a.outcome, ''), coalesce(a.error, ''),
    d.input, d.metadata
FROM samples s LEFT JOIN scores x USING (sample_id, epoch) LEFT JOIN sample_data d USING (sample_id)
LEFT JOIN attempts a ON a.lease_id = coalesce(x.lease_id, (SELECT b.lease_id FROM attempts b
    WHERE b.sample_id = s.sample_id AND b.epoch = s.epoch ORDER BY b.number DESC LIMIT 1))
"""


class RunRows:
    """Makes rows of a run; the order of the scores in them is that of :attr:`names`.

    Args:
        run: The run.
        total: Number of its (sample, epoch) pairs, by which texts are cut.
    """

    def __init__(self, run: RecordedRun, total: int) -> None:
        self._run = run
        self.names: list[str] = []
        """Names of the scores, in the order of their first appearance."""
        self._chars = max(SHORTEST, min(LONGEST, TEXT_BUDGET // (4 * max(1, total))))

    def read(self, sample_ids: Sequence[str] | None = None) -> Iterator[tuple[tuple[str, int], list[Any]]]:
        """Yield (sample, epoch) and row, in the suite's order.

        Args:
            sample_ids: Only of these samples; None = of all.

        Raises:
            ConfigError: the ledger can't be read.
        """
        if sample_ids is None:
            found = self._run.read_rows(f"{_ROWS} ORDER BY s.position, s.epoch")
        else:
            chosen = "s.sample_id IN (SELECT value FROM json_each(?))"
            found = self._run.read_rows(
                f"{_ROWS} WHERE {chosen} ORDER BY s.position, s.epoch", json.dumps(list(sample_ids))
            )
        for each in found:
            yield (str(each[0]), int(each[1])), self._build_row(each)

    def _build_row(self, found: Sequence[Any]) -> list[Any]:
        sample_id, epoch, position, state, attempts, status, passed, text = found[:8]
        wall_ms, tokens, cost_usd, sessions, tree, output, failure, error = found[8:16]
        scores = parse_scores(text) if text else {}
        for name in scores:
            if name not in self.names:
                self.names.append(name)
        aligned = [scores.get(name) for name in self.names]
        became = classify_outcome(state, failure, passed=bool(passed))
        metadata = parse_object(found[17])
        return [
            make_visible(sample_id),
            epoch,
            position,
            became,
            status or "",
            make_visible(_classify(became, status or "", failure)),
            self._cut(_explain(scores, error)),
            [None if each is None else each["value"] for each in aligned],
            [None if each is None else each["passed"] for each in aligned],
            wall_ms,
            cost_usd,
            tokens,
            sessions,
            attempts,
            tree,
            self._cut(make_readable(found[16] or "")),
            self._cut(_answer(scores, output)),
            read_tags(metadata),
            _select_members(metadata),
        ]

    def _cut(self, text: str) -> str:
        line = " ".join(text[: 2 * self._chars].split())
        return make_visible(line if len(line) <= self._chars else f"{line[: self._chars - 1]}…")


def classify_outcome(state: str, failure: str, *, passed: bool) -> str:
    """Return what became of a (sample, epoch), as one of :data:`OUTCOMES`.

    Args:
        state: Its state in the ledger.
        failure: Kind of the failure of the last attempt; empty = none.
        passed: Whether all scores passed.
    """
    if state == "undecided":
        return str(Fault.UNDECIDED)
    if state == "scored":
        return "passed" if passed else "not passed"
    if state == "failed":
        return str(FailureKind(failure).fault if failure in _KINDS else Fault.INFRASTRUCTURE)
    return "running" if state == "leased" else "waiting"


_KINDS: Final = frozenset(FailureKind)


def _classify(outcome: str, status: str, failure: str) -> str:
    """Return which kind of failure a row shows; empty = none, or simply a wrong answer."""
    if outcome in {"infrastructure", "undecided"}:
        return failure or "error"
    return "" if status in {"", "completed"} else status


def _explain(scores: Mapping[str, Mapping[str, Any]], error: str) -> str:
    if error:
        return error
    failed = (each for each in scores.values() if not each["passed"])
    return "; ".join(str(each["explanation"] or f"value {each['value']:g}") for each in failed)


def _answer(scores: Mapping[str, Mapping[str, Any]], output: str) -> str:
    """Return the part of the output that was judged, or else all of it."""
    judged = next((str(each["answer"]) for each in scores.values() if each["answer"]), "")
    return judged or make_readable(output)


def make_readable(text: str) -> str:
    """Return JSON text as people read it: a string without its quotes, another value with indents."""
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def parse_object(text: str | None) -> Json:
    """Return the members of JSON text; none if it is not an object."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_tags(metadata: Mapping[str, Any]) -> list[str]:
    """Return the tags of a sample: the member ``tags`` of its metadata, or ``tag``."""
    given = metadata.get("tags", metadata.get("tag", []))
    found = given if isinstance(given, list) else [given]
    return [make_visible(str(each)[:MAX_MEMBER_CHARS]) for each in found[:MAX_TAGS] if each not in ("", None)]


def _select_members(metadata: Mapping[str, Any]) -> list[list[str]]:
    """Return the short members of a sample's metadata by which rows can be filtered."""
    plain = (
        (name, json.dumps(value) if isinstance(value, bool) else str(value))
        for name, value in metadata.items()
        if isinstance(value, str | int | float) and name not in {"tags", "tag"}
    )
    short = [(name, text) for name, text in plain if max(len(name), len(text)) <= MAX_MEMBER_CHARS]
    return [[make_visible(name), make_visible(text)] for name, text in short[:MAX_MEMBERS]]
