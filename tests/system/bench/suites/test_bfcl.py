"""BFCL's suite in its own environment: its checker passes the ground truth and fails what is not it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.system.bench.suites.suite_fixtures import MAX_S, printed_by

pytestmark = pytest.mark.slow

PROGRAM = "tests.system.bench.suites.bfcl_program"
CHOSEN = (
    "multi_turn_base_1",
    "multi_turn_miss_func_0",
    "multi_turn_miss_param_0",
    "multi_turn_long_context_2",
)
MISFITS = ("multi_turn_base_173", "multi_turn_miss_func_49")
"""Entries whose ground truth does not keep to BFCL's own documents."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program in the suite's environment printed."""
    place = tmp_path_factory.mktemp("bfcl")
    words = (str(place), "local", ",".join(CHOSEN), ",".join(MISFITS))
    printed: dict[str, Any] = printed_by("bfcl", PROGRAM, *words)
    return printed


def values(scores: dict[str, Any]) -> dict[str, float]:
    """Return the values of scores by id."""
    return {name: score["value"] for name, score in scores.items()}


@pytest.mark.long
def test_package_holds_eight_hundred_entries(found: dict[str, Any]) -> None:
    """Two hundred of each category, whose ground truth can be read without evaluating it."""
    facts = found["facts"]
    assert set(facts["categories"].values()) == {200}
    assert len(facts["categories"]) == 4
    assert facts["calls"] == 4625
    assert facts["round_trip"]


def test_nothing_but_a_call_with_literals_is_read(found: dict[str, Any]) -> None:
    """Code inside arguments, several calls, unknown functions and unfinished text are refused by name."""
    assert all(found["facts"]["refused"])
    assert all("entry: the call" in refusal for refusal in found["facts"]["refused"])


@pytest.mark.covers("C14")
def test_ground_truth_passes_the_checker(found: dict[str, Any]) -> None:
    """One entry of each category, and the live instances are in the checker's state."""
    chosen = {name: found["truth"][name] for name in CHOSEN}
    assert values(chosen) == dict.fromkeys(CHOSEN, 1.0)
    assert all(score["metadata"]["same_state"] for score in chosen.values())


def test_ground_truth_against_the_documents_fails(found: dict[str, Any]) -> None:
    """Text for a documented integer is refused, and so is a function that is not offered yet."""
    assert values({name: found["truth"][name] for name in MISFITS}) == dict.fromkeys(MISFITS, 0.0)


def test_altered_call_fails_the_checker(found: dict[str, Any]) -> None:
    """The verdict depends on what was carried out: one wrong argument is enough, in every category."""
    assert values(found["altered"]) == dict.fromkeys(CHOSEN, 0.0)
    assert {score["metadata"]["error_type"] for score in found["altered"].values()} == {
        "multi_turn:instance_state_mismatch"
    }


def test_endless_model_is_stopped_as_bfcl_does(found: dict[str, Any]) -> None:
    """After BFCL's number of steps the entry fails, with BFCL's own name for it; nothing is an error."""
    (score,) = found["endless"].values()
    assert score["status"] == "completed"
    assert score["metadata"]["error_type"] == "multi_turn:force_terminated"


def test_function_is_offered_from_its_turn_on(found: dict[str, Any]) -> None:
    """It is hidden from the model before, and not only refused; the entry passes nevertheless."""
    (score,) = found["watcher"].values()
    assert score["value"] == 1.0
    assert {said for said, is_offered in found["offered"] if is_offered} == {4, 5}
    assert {said for said, is_offered in found["offered"] if not is_offered} == {1, 2, 3}


@pytest.mark.long
def test_damage_is_the_same_for_the_same_seed(found: dict[str, Any]) -> None:
    """Kinds, outcomes and verdicts; another seed damages other calls."""
    assert found["damaged"] == found["again"]
    assert found["damaged"] != found["other"]


@pytest.mark.parametrize("run", ["damaged", "other"])
def test_only_unrepaired_damage_fails_a_sample(found: dict[str, Any], run: str) -> None:
    """A sample whose damaged calls all ran as intended passes the checker."""
    for name, score in found[run].items():
        outcomes = {outcome for _, outcome, _ in score["metadata"]["damage"]}
        assert outcomes
        is_whole = outcomes <= {"corrected", "attempt_2", "attempt_3"}
        assert score["value"] == float(is_whole), f"{name}: {score}"


def test_checker_keeps_no_instance(found: dict[str, Any]) -> None:
    """BFCL's module would keep every sample's objects for ever; they are removed after each verdict."""
    assert found["left"] == []


@pytest.mark.covers("C14")
@pytest.mark.long
def test_entry_passes_on_ray(tmp_path: Path) -> None:
    """The session is another process; the toy instances stay with the suite."""
    printed = printed_by("bfcl", PROGRAM, str(tmp_path), "ray", CHOSEN[1], "")
    assert values(printed["scores"]) == {CHOSEN[1]: 1.0}


def test_command_runs_the_suite_in_its_environment(tmp_path: Path) -> None:
    """Started in the base, which lacks BFCL; a file sets the suite's options."""
    file = tmp_path / "undamaged.toml"
    file.write_text('suite = "sessiontree.bench.suites.bfcl:bfcl"\n[options]\nrate = 0.0\n', "utf-8")
    words = ["bench", "run", str(file), "--model", "damaged", "--backend", "local", "--limit", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "sessiontree.cli", *words, "--dir", str(tmp_path / "run"), "--json"],
        capture_output=True,
        text=True,
        timeout=MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite")) as ledger:
        scores = [json.loads(row[0])["bfcl_checker"] for row in ledger.execute("SELECT scores FROM scores")]
    assert [score["value"] for score in scores] == [1.0, 1.0]
    assert [score["metadata"]["damage"] for score in scores] == [[], []]
