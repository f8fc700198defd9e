"""A run of this suite fails when its tests leave a process or a file behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import os
def test_leaves_a_child():
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    open("left.pid", "w").write(str(pid))
"""
DAEMON = """
import subprocess
def test_leaves_a_grandchild_of_its_own_session():
    subprocess.run(["setsid", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $! > left.pid"], check=True)
"""
UNWAITED = """
import os
def test_leaves_a_child_nobody_waited_for():
    os.posix_spawn("/bin/true", ["true"], os.environ)
"""
TEMPORARY = """
import tempfile
def test_leaves_a_directory():
    tempfile.mkdtemp(prefix="forgotten-")
"""
STATE = """
import pathlib, platformdirs
def test_writes_to_the_user_s_state():
    pathlib.Path(platformdirs.user_state_dir("sessiontree", ensure_exists=True), "forgotten-journal").touch()
"""
TIDY = """
import subprocess, tempfile
def test_cleans_up(tmp_path):
    (tmp_path / "kept").touch()
    with tempfile.TemporaryDirectory():
        assert subprocess.run(["true"]).returncode == 0
"""


def run_suite(checkout: Path, folder: Path, source: str) -> tuple[int, str]:
    """Run one planted test beneath this suite's conftest; end what it left, return exit code and report."""
    for name in ("conftest.py", "seconds.txt"):
        shutil.copy(checkout / "tests" / name, folder)
    (folder / "test_planted.py").write_text(source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        ".",
        "--basetemp",
        "t",
    ]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"SESSIONTREE_TEST_GRACE_S": "2", "PYTHONPATH": str(checkout)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    finally:
        left = folder / "left.pid"
        if left.exists():
            os.kill(int(left.read_text()), signal.SIGKILL)
    return done.returncode, done.stdout


@pytest.mark.slow
def test_tidy_run_passes(checkout: Path, tmp_path: Path) -> None:
    """Files in ``tmp_path`` and processes that were waited for are no leftovers."""
    code, report = run_suite(checkout, tmp_path, TIDY)
    assert code == 0, report


@pytest.mark.short(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "complaint"),
    [(CHILD, "sleep) in state S"), (DAEMON, "sleep) in state S"), (UNWAITED, "true) in state Z")],
    ids=["child", "daemon", "unwaited"],
)
def test_planted_process_is_found(checkout: Path, tmp_path: Path, source: str, complaint: str) -> None:
    """A child, a grandchild that left the session, and a child never waited for fail the run."""
    code, report = run_suite(checkout, tmp_path, source)
    assert code == 1, report
    assert "the tests left behind: process" in report
    assert complaint in report


@pytest.mark.slow
@pytest.mark.parametrize("source", [TEMPORARY, STATE], ids=["temporary", "state"])
def test_planted_file_is_found(checkout: Path, tmp_path: Path, source: str) -> None:
    """A forgotten temporary directory and a journal in the user's own state folder fail the run."""
    code, report = run_suite(checkout, tmp_path, source)
    assert code == 1, report
    assert "the tests left behind: file" in report
