"""One sample of a run: its score, its attempts, and the transcript of the tree that was scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sessiontree import ConfigError, JournalError
from sessiontree.api.stored.transcript import TranscriptStep, build_transcript, indent_text, shorten
from sessiontree.bench.results.recorded_run import AttemptRecord, RecordedRun, ScoredSample
from sessiontree.bench.results.report import format_seconds, number
from sessiontree.bench.results.run_facts import RunFacts
from sessiontree.bench.results.run_history import PastScore, list_past_scores
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SampleView:
    """What a run knows of one (sample, epoch)."""

    run_dir: str
    suite: str
    sample_id: str
    epoch: int
    epochs: tuple[int, ...]
    """All epochs of the sample in this run."""
    state: str
    """``waiting``, ``leased``, ``scored`` or ``failed``."""
    scored: ScoredSample | None
    """None = it has no score."""
    attempts: tuple[AttemptRecord, ...]
    history: tuple[PastScore, ...]
    """Scores that gave way, oldest first."""
    tree_id: str
    """The tree that was scored, or that of the last attempt; empty = no tree was opened."""
    transcript: tuple[TranscriptStep, ...]
    missing: str
    """Why the tree can't be read; empty = it can."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield what is said of the sample and its scores, one line each."""
        others = f" of {len(self.epochs)}" if len(self.epochs) > 1 else ""
        yield f"sample {self.sample_id}, epoch {self.epoch}{others}, suite {self.suite}: {self.state}"
        scored = self.scored
        if scored is None:
            return
        verdict = _format_verdict(scored.passed)
        yield (
            f"{verdict} ({scored.status}) in {format_seconds(scored.wall_ms)}, ${scored.cost_usd:,.4f}, "
            f"{scored.input_tokens:,} input and {scored.output_tokens:,} output tokens, "
            f"{scored.sessions:,} sessions"
        )
        for name, score in scored.scores.items():
            yield f"  {name}: {number(score['value'])}, {'passed' if score['passed'] else 'not passed'}"
            for part in ("answer", "explanation"):
                if score.get(part):
                    yield from indent_text(f"{part}: {score[part]}", 4)
        if scored.error:
            yield from indent_text(f"{scored.error_kind}: {scored.error}", 2)
            for frame in scored.raised.splitlines():
                yield from indent_text(frame, 4)
        yield from indent_text(f"output: {scored.output}", 2)

    def attempt_rows(self) -> list[tuple[str | int, ...]]:
        """Return a row for each attempt: number, outcome, time, tree, error."""
        return [
            (
                each.number,
                each.outcome or "not ended",
                format_seconds(None if each.ended_at_ms is None else each.ended_at_ms - each.started_at_ms),
                each.tree_id or "-",
                shorten(f"{each.error_kind}: {each.error}", 200) if each.error_kind else "",
            )
            for each in self.attempts
        ]

    def build_history_rows(self) -> list[tuple[str | int, ...]]:
        """Return a row for each score that gave way, and the one that counts: revision, scores, reason."""
        rows: list[tuple[str | int, ...]] = [
            (
                each.revision,
                _format_verdict(each.passed),
                _format_scores(each.scores),
                each.made_by,
                _format_code(each.provenance),
                each.reason,
            )
            for each in self.history
        ]
        scored = self.scored
        if scored is not None and rows:
            said = (
                _format_verdict(scored.passed),
                _format_scores(scored.scores),
                scored.made_by,
                _format_code(scored.provenance),
            )
            rows.append((scored.revision, *said, "counts"))
        return rows

    def render_transcript(self) -> Iterator[str]:
        """Yield the transcript, one line each."""
        for entry in self.transcript:
            yield from entry.lines()


def view_sample(run: RecordedRun, sample_id: str, epoch: int | None = None) -> SampleView:
    """Return what a run knows of a sample.

    Args:
        run: The run.
        sample_id: The sample.
        epoch: Which of its epochs; None = the first that did not pass, or the first of all.

    Raises:
        ConfigError: the run has no such sample or epoch; names what there is.
    """
    run.require_sample(sample_id)
    states = {
        int(number): str(state)
        for number, state in run.rows(
            "SELECT epoch, state FROM samples WHERE sample_id = ? ORDER BY epoch", sample_id
        )
    }
    scores = {each.epoch: each for each in run.scored(sample_id)}
    if epoch is None:
        epoch = next((each for each in states if each not in scores or not scores[each].passed), min(states))
    elif epoch not in states:
        known = ", ".join(str(each) for each in states)
        raise ConfigError(f"sample {sample_id!r} has no epoch {epoch} in this run; it has {known}")
    attempts = tuple(each for each in run.attempts(sample_id) if each.epoch == epoch)
    scored = scores.get(epoch)
    tree_id = scored.tree_id if scored is not None else _find_last_tree(attempts)
    transcript, missing = _read(run, tree_id)
    return SampleView(
        str(run.run_dir),
        run.suite,
        sample_id,
        epoch,
        tuple(states),
        states[epoch],
        scored,
        attempts,
        tuple(each for each in list_past_scores(run, sample_id) if each.epoch == epoch),
        tree_id,
        transcript,
        missing,
    )


def _format_verdict(passed: bool | None) -> str:
    return {True: "passed", False: "not passed", None: "undecided"}[passed]


def _format_scores(scores: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(f"{name} {number(score['value'])}" for name, score in scores.items()) or "-"


def _format_code(provenance: int | None) -> str:
    return "-" if provenance is None else str(provenance)


def _find_last_tree(attempts: Sequence[AttemptRecord]) -> str:
    return next((each.tree_id for each in reversed(attempts) if each.tree_id), "")


def _read(run: RecordedRun, tree_id: str) -> tuple[tuple[TranscriptStep, ...], str]:
    if not tree_id:
        return (), "no tree was opened"
    try:
        with RunFacts(run.run_dir) as facts:
            return tuple(build_transcript(facts.read(tree_id))), ""
    except JournalError as error:
        return (), str(error)
