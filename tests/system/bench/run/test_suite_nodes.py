"""Suites on a cluster: environments are prepared on every node, and a lost node costs no score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.suite import program
from tests.system.backends.ray.test_cluster import played, short_path
from tests.system.bench.suite.test_suite_environments import wheel

__all__ = ["short_path"]  # a fixture
PROGRAM = Path(__file__).with_name("prepare_program.py")


@pytest.mark.slow
@pytest.mark.long
def test_environment_is_prepared_on_every_ray_node(tmp_path: Path, short_path: Path) -> None:
    """Each node answers with its place, or with what is wrong; sessions of every node then run in it."""
    line = wheel(tmp_path).strip().removeprefix("./")
    found = played(PROGRAM, tmp_path, short_path, str(tmp_path / line))
    assert [failure for _, failure in found["good"]] == ["", ""]
    assert all(Path(place).name.startswith("needs-") for place, _ in found["good"])
    assert all("could not be built" in failure for _, failure in found["bad"]), json.dumps(found)
    *trees, refusal = found["inside"]
    place = found["good"][0][0]
    nodes, prefixes, words = zip(*(text.split() for text in trees), strict=True)
    assert len(set(nodes)) == 2
    assert set(prefixes) == {place}
    assert set(words) == {"tiny"}
    assert "can't have a shard: the program runs in the environment" in refusal


@pytest.mark.slow
@pytest.mark.covers("C14")
@pytest.mark.timeout(400)
@pytest.mark.long
def test_lost_ray_node_costs_no_score(short_path: Path) -> None:
    """Three raylets, one killed: its attempts are given back and solved on the others."""
    found = program("cluster", short_path / "c", "ray", 40)
    assert (found["scored"], found["unscored"], found["scored_twice"], found["wrong"]) == (40, 0, 0, 0)
    assert found["killed"] == 1
    assert found["effects_twice"] == 0


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.covers("SUI3", "SHD6")
def test_driver_on_each_ray_node_works_with_its_own_key(tmp_path: Path, short_path: Path) -> None:
    """Solvers run on all nodes, each reads its own variable, and each node writes its trees' events."""
    found = played(PROGRAM.with_name("drivers_program.py"), tmp_path, short_path)
    assert (found["code"], found["passed"], found["nodes"]) == (0, 24, 3), found["said"]
    assert found["keys"] == ["sk-node-0", "sk-node-1", "sk-node-2"]
    assert found["trees_with_events"] == 24
    assert found["files"] == ["part", "shard", "shard", "shard"]
