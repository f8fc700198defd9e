"""``docs/examples/written_program.py``: a program that a model wrote, in a process that is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.docs.test_documents_run import CHECKOUT

EXAMPLE = CHECKOUT / "docs/examples/written_program.py"
KILL_AFTER = 7
ENDED = re.compile(r"^main/w(\d+) has ended", re.MULTILINE)


@pytest.mark.parametrize("backend", ["--local", pytest.param("--ray", marks=pytest.mark.long)])
def test_killed_program_goes_on_and_asks_no_child_twice(tmp_path: Path, backend: str) -> None:
    """Fifteen children: each ends once, before the kill or after it."""
    where = ["--local"] if backend == "--local" else []

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(EXAMPLE), str(tmp_path / "place"), *where, *words]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ, timeout=90
        )

    killed = start("--kill-after", str(KILL_AFTER))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = start()
    assert resumed.returncode == 0, resumed.stderr
    before, after = ENDED.findall(killed.stdout), ENDED.findall(resumed.stdout)
    assert len(before) == KILL_AFTER
    assert sorted(map(int, before + after)) == list(range(1, 16))
    assert "approved: publish {'path': 'BEST.md'}" in resumed.stdout
    assert '"11.0 text_05.txt"' in resumed.stdout
    best = (tmp_path / "place/texts/BEST.md").read_text().split()
    assert best[1::2] == ["text_05.txt", "text_10.txt", "text_03.txt"]
