"""A disk that is really full: what is refused says so, nothing acknowledged is lost, and room mends it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PROGRAM_S = 400.0
REFUSED = ("send", "send again", "spawn", "call", "other tree", "on a full disk")
OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.mark.covers("DUR6")
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["local", pytest.param("ray", marks=pytest.mark.long)])
def test_full_disk_stops_trees_and_loses_nothing(backend: str, tmp_path: Path) -> None:
    """DUR6, MEM10: typed errors for all who ask; after room is made, the trees go on where they were."""
    probe = subprocess.run([*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", "/mnt"], check=False)
    if probe.returncode:
        pytest.skip("the kernel refuses a small file system to fill (unshare --user --mount)")
    done = subprocess.run(
        [*OWN_MOUNTS, sys.executable, "-m", "tests.unit.runtime.full_disk_program", str(tmp_path), backend],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    how, words = told["record"]
    assert how == "ExecutionError"
    assert "not stored" in words
    assert "No space left" in words
    assert told["record later"][0] == "returned"
    for name in REFUSED:
        how, words = told[name]
        assert how == "JournalUnwritable", name
        assert "the disk is full" in words
        assert "open it again" in words
    assert told["later"] == ["returned", "missing [], remembered True, done after"]
    effects = Counter(told["effects"])
    assert max(effects.values()) == 1
    assert {*told["acked"], "after"} <= effects.keys()
    assert "late" not in effects
    assert len(effects) <= len(told["acked"]) + 2
    assert "Traceback" not in done.stderr
