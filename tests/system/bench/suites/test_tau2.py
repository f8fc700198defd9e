"""tau2's suites in their own environment: ``db_match`` passes the ground truth and fails what is not it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.system.bench.suites.suite_fixtures import printed_by

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program in the suites' environment printed."""
    place = tmp_path_factory.mktemp("tau2")
    printed: dict[str, Any] = printed_by("tau2-retail", "tests.system.bench.suites.tau2_program", str(place))
    return printed


def test_package_holds_the_tasks_of_both_domains(found: dict[str, Any]) -> None:
    """As many as tau2's base split has."""
    assert found["tasks"] == {"retail": 114, "airline": 50}


@pytest.mark.covers("C14")
@pytest.mark.parametrize("domain", ["retail", "airline"])
def test_ground_truth_matches_the_database(found: dict[str, Any], domain: str) -> None:
    """The actions of a task lead to the expected database."""
    scores = found[f"{domain} ground-truth"]
    assert scores
    assert {each["value"] for each in scores.values()} == {1.0}
    assert {each["status"] for each in scores.values()} == {"completed"}


@pytest.mark.parametrize("domain", ["retail", "airline"])
def test_without_its_changes_the_database_does_not_match(found: dict[str, Any], domain: str) -> None:
    """The same tasks, with the reading calls alone: every verdict turns."""
    scores = found[f"{domain} idle"]
    assert scores.keys() == found[f"{domain} ground-truth"].keys()
    assert {each["value"] for each in scores.values()} == {0.0}


@pytest.mark.long
def test_simulated_user_ends_the_conversation(found: dict[str, Any]) -> None:
    """A Worker speaks for the user, knows the scenario, has no tools, and sees only what was said."""
    (score,) = found["talk"].values()
    assert score["status"] == "completed"
    assert score["output"] == 2
    users = [each for each in found["seen"] if each["session"] != "main"]
    assert len(users) == 3
    assert all(each["tools"] == 0 for each in users)
    assert all(found["scenario"] in each["prompt"] for each in users)
    assert "You: I need help.\nAgent: The result was 14.0" in users[1]["last"]
    assert all("calculate" not in each["last"] for each in users)


def test_user_without_a_reply_is_an_error(found: dict[str, Any]) -> None:
    """A failure of the model that plays the user is not taken for what the user says."""
    (score,) = found["silent"].values()
    assert score["status"] == "error"
    assert "value" not in score


@pytest.mark.long
def test_main_has_the_rules_and_not_the_scenario(found: dict[str, Any]) -> None:
    """Only the user knows what the user wants."""
    mains = [each for each in found["seen"] if each["session"] == "main"]
    assert mains
    assert all("<policy>" in each["prompt"] for each in mains)
    assert all(found["scenario"] not in each["prompt"] for each in mains)


def test_schemas_have_no_union(found: dict[str, Any]) -> None:
    """A described object or any object becomes the described one."""
    assert "anyOf" not in json.dumps(found["schemas"])
    passengers = found["schemas"]["update_reservation_passengers"]["properties"]["passengers"]["items"]
    assert set(passengers["required"]) == {"first_name", "last_name", "dob"}


def test_verdicts_leave_nothing(found: dict[str, Any]) -> None:
    """No unpacked database in the directory of temporary files, and no database in inspect's store."""
    assert found["left"] == []
    assert found["kept"] == []
