"""Programs that are killed over and over: nothing acknowledged is lost, and no effect happens twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos import GIVE_UP_S, Kill, Run, facts_of, judge, totals, with_earlier
from benchmarks.chaos_program import Unfinished
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.facts.tree_facts import (
    ResultHeld,
    SessionEnded,
    SessionReactivated,
)
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.results import SessionResult

ROOT = Path(__file__).parents[3]
ZEROS = (
    *("acknowledged_lost", "effects_twice", "children_twice", "asked_twice"),
    *("unresolved", "still_running"),
)
LOCAL = [pytest.param(each, marks=pytest.mark.long) for each in ("points 9", "storm 4")]
"""Three points are tried where the judge is."""
ON_RAY = [pytest.param(each, marks=pytest.mark.long) for each in ("storm 2", "storm 5")]


def killed(way: str, backend: str, place: Path) -> dict[str, int]:
    """Run the harness with a fixed seed; return its figures.

    Args:
        way: The way and the number of kills.
        backend: Where the tree runs.
        place: A directory for what the harness keeps.
    """
    name, kills = way.split()
    command = [*(sys.executable, "-m", "benchmarks.chaos"), "--way", name, "--kills", kills]
    done = subprocess.run(
        [*command, "--seed", "3", "--backend", backend, "--place", str(place), "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["kills"] == int(kills)
    assert min(figures["acknowledged"], figures["effects"]) > 0
    return {name: figures[name] for name in ZEROS}


@pytest.mark.slow
@pytest.mark.covers("REL-S40", "REL-S42")
@pytest.mark.parametrize("way", LOCAL)
def test_program_killed_at_any_point_loses_nothing(way: str, tmp_path: Path) -> None:
    """DUR2, EFF1: whatever the program noted is in the journal; each call ran once at most."""
    assert killed(way, "local", tmp_path) == dict.fromkeys(ZEROS, 0)


@pytest.mark.slow
@pytest.mark.covers("REL-S40", "REL-S42")
@pytest.mark.parametrize("way", ON_RAY)
def test_processes_killed_at_random_lose_nothing(way: str, tmp_path: Path) -> None:
    """DUR2, EFF1, PRC4, PRC9, PRC10: the same for each process of a runtime on Ray."""
    assert killed(way, "ray", tmp_path) == dict.fromkeys(ZEROS, 0)


def test_runs_are_added_up(tmp_path: Path) -> None:
    """A run of many kills may be made of several: counts are added, and recoveries are those of all."""
    path = tmp_path / "runs"
    first = Run(1, ["host", "gcs"], [Kill("host", 1.0), Kill("gcs", 40.0)], {"trees": 1, "effects": 7}, 2.0)
    second = Run(2, ["host"], [Kill("host", None)], {"trees": 1, "effects": 5}, 3.0)
    alone = totals(with_earlier(first, path))
    assert alone == totals(with_earlier(first, None))
    both = totals(with_earlier(second, path))
    assert (both["kills"], both["runs"], both["seeds"], both["wall_s"]) == (3, 2, "1 2", 5.0)
    assert (both["trees"], both["effects"], both["stalls_over_30s"]) == (2, 12, 2)
    assert (both["by_role"], both["recovery_gcs_p95_s"]) == ({"host": 2, "gcs": 1}, 40.0)
    assert both["recovery_host_p50_s"] == (1.0 + GIVE_UP_S) / 2


@pytest.mark.slow
@pytest.mark.covers("REL-S40", "REL-S42")
def test_judge_finds_what_it_looks_for(tmp_path: Path) -> None:
    """Nothing is lost by three kills; each figure rises if something is planted that the journal has not."""
    assert killed("points 3", "local", tmp_path) == dict.fromkeys(ZEROS, 0)
    before = judge(tmp_path, is_drained=True)
    with (tmp_path / "acks").open("a") as acks:
        acks.write("message-1-999999\n")
    effects = tmp_path / "effects"
    effects.write_text(effects.read_text() + effects.read_text().splitlines()[0] + "\n")
    with (tmp_path / "hung").open("a") as hung:
        hung.write("call-1-999999\n")
    after = judge(tmp_path, is_drained=True)
    planted = ("acknowledged_lost", "effects_twice", "unresolved")
    for name in planted:
        assert after[name] == before[name] + 1, name
    trees = (tmp_path / "trees").read_text().split()
    unfinished = Unfinished()
    for _, session, fact, _ in facts_of(tmp_path / "state", trees):
        if not isinstance(fact, CallResolved | SessionEnded):
            unfinished.hear(session, fact)
    assert unfinished.calls
    assert unfinished.sessions


def test_session_that_stays_open_for_a_program_is_kept_until_it_goes_on() -> None:
    """It counts as unfinished again once it has work."""
    unfinished = Unfinished()
    unfinished.hear("", ResultHeld("main/b1", SessionResult(SessionStatus.COMPLETED, "done")))
    assert unfinished.kept == {"main/b1"}
    unfinished.hear("", SessionReactivated("main/b1"))
    assert not unfinished.kept
