"""``docs/examples/one_turn.py``: the file that a stranger reads first is short, and does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.system.docs.test_documents_run import CHECKOUT

EXAMPLE = CHECKOUT / "docs/examples/one_turn.py"
MAX_LINES = 150


def test_one_turn_has_one_effect_wherever_its_host_ends(tmp_path: Path) -> None:
    """Three hosts: each writes once, and only the result that was lost is unknown."""
    assert len(EXAMPLE.read_text("utf-8").splitlines()) <= MAX_LINES
    command = [sys.executable, str(EXAMPLE), str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    lives, before, after = printed.split("# A host that ")[1:]
    assert [part.count("effect: hello.txt is written") for part in (lives, before, after)] == [1, 1, 1]
    assert lives.index("fact: CallIntended") < lives.index("effect:") < lives.index("fact: CallResolved ok")
    assert before.index("the host ends") < before.index("fact: CallIntended") < before.index("effect:")
    assert after.index("effect:") < after.index("the host ends") < after.index("fact: CallResolved unknown")
    assert all(part.count("fact: RunFinished") == 1 for part in (lives, before, after))
    assert (tmp_path / "hello.txt").read_text() == "Hello.\n"
