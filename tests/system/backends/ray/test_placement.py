"""Workers and Branches of one tree on other nodes of a cluster: four raylets, and one of them is killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.backends.ray.test_cluster import PROGRAM, played, short_path

PLACEMENT_PROGRAM = PROGRAM.with_name("placement_program.py")
__all__ = ["short_path"]


@pytest.mark.slow
@pytest.mark.long
def test_tree_is_spread_over_the_nodes_that_fit(tmp_path: Path, short_path: Path) -> None:
    """Sessions run on the nodes with their labels and resources, as confined as on the program's node.

    One node has the labels, and another directory at the workspace's path: it is named and not used. A killed
    node's Branch goes on at the next one. A cancelled command leaves no process, and the runtime no file.
    """
    found = played(PLACEMENT_PROGRAM, tmp_path, short_path)
    other, warnings = found.pop("other"), found.pop("warnings")
    assert found.pop("recovery_s") < 60
    assert found == {
        "main": True,
        "workers": True,
        "worker_rights": [["EACCES", "done"]],
        "recalled": "[nothing that was remembered fits; use other or fewer words]",
        "times": True,
        "visited": True,
        "survivors": 0,
        "nowhere": "placement: no node fits 'worker', which asks for label zone=nowhere: "
        "no node that is alive has that",
        "left": [],
    }
    assert (other is not None) == (os.geteuid() == 0)
    assert len(warnings) == (other is not None)
    assert all(f"({other}) has another workspace at " in each and "inode" in each for each in warnings)
