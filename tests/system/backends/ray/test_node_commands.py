"""Commands on other nodes of a cluster: they end with their session, their host and their node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.backends.ray.test_cluster import PROGRAM, played, short_path

NODE_COMMANDS_PROGRAM = PROGRAM.with_name("node_commands_program.py")
__all__ = ["short_path"]


@pytest.mark.covers("S15", "S52", "JOB3", "JOB10")
@pytest.mark.slow
@pytest.mark.long
def test_commands_run_and_end_on_other_nodes(tmp_path: Path, short_path: Path) -> None:
    """In the workspace where it is, else in a directory that is removed; none outlives what it belongs to.

    A name of several nodes is refused. A job of a killed raylet is lost, and a call says that its effect is
    not known.
    """
    found = played(NODE_COMMANDS_PROGRAM, tmp_path, short_path)
    workspace, elsewhere = found.pop("workspace"), found.pop("elsewhere")
    assert workspace[:2] == ["", str(tmp_path / "workspace")]
    assert workspace[2] == "given"
    assert "exited with code 5; it ran on node" in workspace[3]
    assert "in the workspace" in workspace[3]
    if os.geteuid() == 0:
        assert elsewhere[0] != workspace[1]
        assert elsewhere[1] == "2"
        assert not Path(elsewhere[0]).exists()
        assert "in an empty directory that is removed, because the workspace is not there" in elsewhere[2]
    assert found == {
        "refused": ["several nodes have the name 'NAME'"] * 2 + ["no node has the name 'no node'"],
        "huge": [True, True, 0],
        "slow": ["timeout", 0],
        "killed": ["killed", 0],
        "cancelled": 0,
        "ended": 0,
        "lost": {"call": True, "job": "lost", "left": 0, "again": True},
        "kill": {"host": 0, "supervisor": 0},
        "files": [],
    }
