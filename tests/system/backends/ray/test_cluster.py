"""One supervisor on each node of a cluster: three raylets on the loopback interface, one of them killed."""

from __future__ import annotations

import json
import platform
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from sessiontree.backends.ray.engine import engine_home
from sessiontree.sandbox import detect_level
from sessiontree.version import VERSION

PROGRAM = Path(__file__).with_name("cluster_program.py")
NODES_PROGRAM = PROGRAM.with_name("nodes_program.py")
ROOT = PROGRAM.parents[4]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for the names of Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="own-", dir="/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)
        # The agents of a node whose raylet was killed outlive it by a minute.
        engine_home.end_processes(
            Path(path), grace_s=0.0, known=engine_home.log_writers(Path(path).resolve())
        )


def played(program: Path, base: Path, folder: Path, *more: str, **variables: str) -> Any:
    """Run a program with a cluster of its own and further variables; return what it found."""
    ray_files = folder / "ray"  # the name that Ray itself gives this directory below RAY_TMPDIR
    ran = subprocess.run(
        [sys.executable, str(program), str(base), str(ray_files), *more],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "HOME": str(base),
            "RAY_TMPDIR": str(folder),
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("{")))


@pytest.mark.slow
@pytest.mark.long
def test_cluster_goes_on_without_a_node_that_is_lost(tmp_path: Path, short_path: Path) -> None:
    """Each node gets a tree; those of a killed raylet are named and resumed, the others go on.

    An effect that an answer reports is there, and none happens twice.
    """
    assert played(PROGRAM, tmp_path, short_path) == {
        "effects_twice": 0,
        "effects_missing": 0,
        "nodes": [[False, 1], [True, 1], [True, 1]],
        "answers": ["done"] * 4,
        "listed": True,
        "lost_error": True,
        "lost_rows": [True],
        "others": ["done"] * 2,
        "resumed": "done",
    }


@pytest.mark.slow
@pytest.mark.long
def test_cluster_is_looked_at_node_by_node(tmp_path: Path, short_path: Path) -> None:
    """Doctor shows releases, processes and confinement of each node; a node that doesn't answer is named."""
    found = played(NODES_PROGRAM, tmp_path, short_path)
    told, other = found["told"], found["other"]
    assert found["reached"] == found["expected"], "a cluster that listens on the loopback interface alone"
    assert (found["code"], told["fine"]) == (0, True)
    (failure,) = (each for node, each in found["stopped"].items() if other in node)
    assert failure == "it did not answer within 3 s"
    nodes = told["cluster"]["nodes"]
    alive = [each for each in nodes if each["alive"]]
    assert [each["failure"] for each in nodes if not each["alive"]] == ["it left the cluster"]
    assert len(alive) == 2
    for node in alive:
        assert (node["failure"], node["supervisors"]) == (None, 1)
        assert node["hosts"] > 0
        assert (node["sessiontree"], node["python"], node["ray"]) == (
            VERSION,
            platform.python_version(),
            ray.__version__,
        )
        assert (node["confinement"], node["is_confined"]) == (str(detect_level()), True)
        assert node["listening"] == []
    security = told["cluster"]["ray"]
    assert (security["auth_mode"], security["dashboard"], security["nodes"]) == ("disabled", "off", 2)
    whats = [each["what"].partition(":")[0] for each in told["findings"]]
    assert {"nodes that left the cluster", "this Ray asks for no token"} <= set(whats)
    assert any(line.split()[:2] == ["127.0.0.1", f"({other})"] for line in found["shown"])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.covers("C14", "SHD4", "SHD5", "SHD6", "SHD8")
def test_shards_follow_the_nodes_and_each_reads_its_own_key(tmp_path: Path, short_path: Path) -> None:
    """Nodes with the label get trees, also one that joins; the key of each is that of its environment."""
    found = played(PROGRAM.with_name("following_program.py"), tmp_path, short_path)
    assert found["first"] == ["asked with key 2", "asked with key 3"]
    assert found["own_trees"] == 0
    assert "a key that is given as text stays on the program's node" in found["text"]
    assert "asked with key 4" in found["later"]
    assert "the variable NODE_KEY is not set" in found["no_key"]
    assert found["reserved"] > 0
    assert found["reserved_after"] == 0


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(500)
@pytest.mark.covers("SHD9")
def test_trees_make_an_autoscaler_add_nodes(tmp_path: Path, short_path: Path) -> None:
    """A node comes for trees that are open, and gets trees."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    found = played(PROGRAM.with_name("autoscaling_program.py"), tmp_path, short_path, **token)
    assert found == {
        "before": 1,
        "came": True,
        "began": True,
        "answers": ["done"] * 6,
        "trees": [3, 3],
    }
