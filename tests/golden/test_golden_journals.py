"""Journals of every release are read by this one, and replay to what they meant then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessiontree.contracts.codec import current_versions
from sessiontree.contracts.jsonable import dump_json
from sessiontree.version import VERSION
from tests.golden.replay_fixtures import summary_of

HERE = Path(__file__).parent
GOLDEN = sorted(HERE.glob("*.ndjson"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_journal_replays_to_what_was_recorded(path: Path) -> None:
    """A fact never changes its meaning: today's evolve gives the state of the day it was written."""
    recorded = json.loads(path.with_suffix(".json").read_text())
    with path.open() as lines:
        replayed = json.loads(dump_json(summary_of(lines)))
    assert replayed == recorded


def test_this_release_has_a_golden_journal() -> None:
    """No release goes out without one."""
    assert VERSION in {path.stem for path in GOLDEN}


def test_golden_journal_holds_most_kinds_of_fact() -> None:
    """The scenario is worth replaying: it leaves facts of at least twenty-five kinds, all known here."""
    kinds = set(json.loads(HERE.joinpath(f"{VERSION}.json").read_text())["kinds"])
    assert kinds <= set(current_versions())
    assert len(kinds) >= 25, sorted(kinds)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("compacted", {"turn_failed", "compaction_begun", "compaction_failed", "context_compacted"}),
        ("forked", {"context_compacted", "tree_forked", "session_forked", "approval_decided"}),
    ],
)
def test_golden_journal_of_a_compaction_or_a_fork_holds_its_facts(name: str, kinds: set[str]) -> None:
    """What the scenario of a release does not leave is recorded apart."""
    assert kinds <= set(json.loads(HERE.joinpath(f"0.1.0-rules-1-{name}.json").read_text())["kinds"])


def test_altered_fact_is_noticed(tmp_path: Path) -> None:
    """The comparison can fail: one flipped letter is either refused or replays to something else."""
    path = HERE / f"{VERSION}.ndjson"
    altered = path.read_text().replace("done climbing", "done Climbing", 1)
    with pytest.raises(AssertionError):
        summary_of(altered.splitlines(keepends=True))
