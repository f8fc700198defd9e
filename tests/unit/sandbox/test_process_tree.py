"""Processes below another one: found and ended however they hide, and nothing else with them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from benchmarks.stubborn import KINDS, survivors, words
from sessiontree.sandbox import launcher, prepare_canaries
from sessiontree.sandbox.process_tree import REPORT, find_ancestors, find_process_identity

TIMEOUT_S = 120
HOST = """
import json, os, signal, subprocess, sys
status = subprocess.Popen(["/bin/sh", "-c", "exit 7"]).wait()
started = [subprocess.Popen(each) for each in json.loads(sys.argv[1])]
print(json.dumps([os.getpid(), os.getppid(), os.getpgid(0), os.getpgid(os.getppid()), status]), flush=True)
sys.stdin.readline()
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""Starts what it is asked to, says who it is, and ends when it is asked to."""


def started(place: Path, commands: list[list[str]], end: str) -> subprocess.Popen[str]:
    """Start a host with a reaper above it."""
    host = place / "host.py"
    host.write_text(HOST, "utf-8")
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", launcher.__file__, "--role", "trial", "--cwd", str(place)),
            *("--reap", str(place), "--run", str(host), json.dumps(commands), end),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.short(5)
@pytest.mark.slow
@pytest.mark.parametrize("end", ["exits", "killed"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_outlives_a_host_however_it_ends(tmp_path: Path, kind: str, end: str) -> None:
    """STP13: daemons, the deaf, those that fork while they are killed: ended and counted."""
    mark = f"stubborn-{uuid.uuid4().hex}"
    with started(tmp_path, [words(kind, mark)] * 2, end) as reaper:
        assert reaper.stdout is not None
        pid, parent, group, above, status = json.loads(reaper.stdout.readline())
        assert (parent, status) == (reaper.pid, 7)
        assert group != above
        reaper.communicate("end\n", timeout=TIMEOUT_S)
    assert survivors(mark) == []
    assert int((tmp_path / f"{REPORT}{pid}").read_text("ascii")) >= (0 if kind == "hopper" else 1)


def test_host_that_leaves_nothing_says_so(tmp_path: Path) -> None:
    """And what else this process started lives on."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        with started(tmp_path, [], "exits") as reaper:
            out, _ = reaper.communicate("end\n", timeout=TIMEOUT_S)
        assert (tmp_path / f"{REPORT}{json.loads(out)[0]}").read_text("ascii") == "0"
        assert other.poll() is None


def test_host_ends_with_its_reaper(tmp_path: Path) -> None:
    """Otherwise nobody would end what it leaves."""
    with started(tmp_path, [], "exits") as reaper:
        assert reaper.stdout is not None
        host = os.pidfd_open(json.loads(reaper.stdout.readline())[0])
        reaper.send_signal(signal.SIGTERM)
        reaper.send_signal(signal.SIGINT)
        assert reaper.poll() is None
        reaper.kill()
        assert select.select([host], [], [], TIMEOUT_S)[0]
        os.close(host)


def test_host_that_starts_too_late_makes_nothing(tmp_path: Path) -> None:
    """Its runtime was closed and has removed its directory; a self-test makes nothing either."""
    host = tmp_path / "host.py"
    host.write_text("print('up')", "utf-8")
    place = tmp_path / "runtime" / "scratch"
    late = [sys.executable, "-I", "-S", launcher.__file__, "--role", "trial", "--cwd", str(place)]
    done = subprocess.run([*late, "--run", str(host)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"can't work in '{place}'" in done.stderr
    assert done.stdout == ""
    with pytest.raises(FileNotFoundError):
        prepare_canaries(place / "victims")
    assert list(tmp_path.iterdir()) == [host]


def test_process_is_known_by_its_start() -> None:
    """An id given again would be another process; one that only waits to be collected is not one."""
    me = find_process_identity(os.getpid())
    assert me is not None
    assert find_ancestors(os.getpid())[0] == me
    with subprocess.Popen(["true"]) as done:
        os.waitid(os.P_PID, done.pid, os.WEXITED | os.WNOWAIT)
        assert find_process_identity(done.pid) is None
    assert find_process_identity(done.pid) is None
    assert find_ancestors(done.pid) == []
