"""What is read of a sample when it is opened: its task, answer, scores with reasons, and attempts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sessiontree import ConfigError, make_visible
from sessiontree.bench.results.recorded_run import AttemptRecord, RecordedRun, ScoredSample, parse_scores
from sessiontree.bench.view.run_rows import classify_outcome, make_readable, parse_object, read_tags
from sessiontree.view.markdown import make_lines_visible

MAX_CHARS: Final = 60_000
"""Longest text that a page shows of a sample; `sessiontree bench show` has all of it."""

Json = dict[str, Any]


def read_sample(run: RecordedRun, sample_id: str, epoch: int) -> Json:
    """Return everything that a page shows of a (sample, epoch), but its tree.

    Raises:
        ConfigError: the run has no such sample or epoch.
    """
    found = run.rows("SELECT epoch, state FROM samples WHERE sample_id = ? ORDER BY epoch", sample_id)
    states = {int(number): str(state) for number, state in found}
    if epoch not in states:
        raise ConfigError(f"the run has no sample {sample_id[:80]!r} with an epoch {epoch}")
    attempts = [each for each in run.attempts(sample_id) if each.epoch == epoch]
    scored = next((each for each in run.scored(sample_id) if each.epoch == epoch), None)
    failure, kind, error, raised = _find_failure(run, sample_id, epoch)
    status = scored.status if scored else ""
    return {
        "id": make_visible(sample_id),
        "epoch": epoch,
        "epochs": list(states),
        "outcome": classify_outcome(states[epoch], failure, passed=bool(scored and scored.passed)),
        "status": status,
        **_read_task(run, sample_id),
        "output": _show_text(make_readable(scored.output)) if scored else None,
        "scores": _build_scores(scored.scores) if scored else [],
        "failure": {"kind": make_visible(kind), "text": _show_text(error), "raised": _show_text(raised)}
        if error
        else None,
        "used": _list_usage(scored) if scored else None,
        "tree": choose_tree(scored, attempts),
        "attempts": [_attempt(each) for each in attempts],
        "history": _build_history(run, sample_id, epoch),
    }


def choose_tree(scored: ScoredSample | None, attempts: Sequence[AttemptRecord]) -> str:
    """Return the tree to look at: the one that was scored, or that of the last attempt; empty = none."""
    if scored is not None:
        return scored.tree_id
    return next((each.tree_id for each in reversed(attempts) if each.tree_id), "")


def _find_failure(run: RecordedRun, sample_id: str, epoch: int) -> tuple[str, str, str, str]:
    """Return kind, class, words and place of the failure of the attempt that counts; empty = none."""
    found = run.rows(
        "SELECT coalesce(a.failure, a.error_kind, a.outcome, ''), coalesce(a.error_kind, a.outcome, ''), "
        "coalesce(a.error, ''), coalesce(a.raised, '') FROM attempts a "
        "LEFT JOIN scores x ON x.lease_id = a.lease_id "
        "WHERE a.sample_id = ? AND a.epoch = ? ORDER BY x.lease_id IS NULL, a.number DESC LIMIT 1",
        sample_id,
        epoch,
    )
    return found[0] if found else ("", "", "", "")


def _read_task(run: RecordedRun, sample_id: str) -> Json:
    found = run.rows("SELECT input, target, metadata FROM sample_data WHERE sample_id = ?", sample_id)
    given, target, text = found[0] if found else (None, None, None)
    metadata = parse_object(text)
    others = {name: value for name, value in metadata.items() if name not in {"tags", "tag"}}
    return {
        "input": None if given is None else _show_text(make_readable(str(given))),
        "target": _show_text(make_readable(str(target))) if target else None,
        "tags": read_tags(metadata),
        "metadata": [
            [make_visible(str(name)[:200]), _show_text(_format_value(value))["text"]]
            for name, value in others.items()
        ],
    }


def _build_scores(scores: Mapping[str, Mapping[str, Any]]) -> list[Json]:
    return [
        {
            "name": make_visible(name),
            "value": score["value"],
            "passed": score["passed"],
            "answer": _show_text(str(score["answer"])),
            "explanation": _show_text(str(score["explanation"])),
            "metadata": _show_text(_format_value(score["metadata"]) if score["metadata"] else ""),
        }
        for name, score in scores.items()
    ]


def _list_usage(scored: ScoredSample) -> Json:
    return {
        "wall_ms": scored.wall_ms,
        "cost_usd": scored.cost_usd,
        "input_tokens": scored.input_tokens,
        "output_tokens": scored.output_tokens,
        "turns": scored.turns,
        "tool_calls": scored.tool_calls,
        "sessions": scored.sessions,
        "at_ms": scored.committed_at_ms,
    }


def _attempt(attempt: AttemptRecord) -> Json:
    return {
        "number": attempt.number,
        "outcome": attempt.outcome or "not ended",
        "began_ms": attempt.started_at_ms,
        "ended_ms": attempt.ended_at_ms,
        "tree": attempt.tree_id,
        "error": _show_text(f"{attempt.error_kind}: {attempt.error}" if attempt.error_kind else "")["text"],
    }


def _build_history(run: RecordedRun, sample_id: str, epoch: int) -> list[Json]:
    """Return the scores that gave way to another one, the oldest first."""
    return [
        {
            "revision": revision,
            "outcome": classify_outcome("undecided" if passed is None else "scored", "", passed=bool(passed)),
            "scores": [[make_visible(name), each["value"]] for name, each in parse_scores(scores).items()],
            "at_ms": at_ms,
            "superseded_ms": superseded_ms,
            "reason": _show_text(str(reason))["text"],
        }
        for revision, passed, scores, at_ms, superseded_ms, reason in run.rows(
            "SELECT revision, passed, scores, committed_at_ms, superseded_at_ms, reason "
            "FROM past_scores WHERE sample_id = ? AND epoch = ? ORDER BY revision",
            sample_id,
            epoch,
        )
    ]


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _show_text(text: str) -> Json:
    """Return a text as a page shows it: visible, and cut."""
    return {"text": make_lines_visible(text[:MAX_CHARS]), "is_cut": len(text) > MAX_CHARS}
