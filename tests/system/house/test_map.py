"""The table of floors in ARCHITECTURE.md is what the rooms say of themselves, and the page is short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MAX_LINES = 300
ROOM = '"""Words: {holds}.\n\nFloor {floor}. More.\nNot here: {absent}. More.\n"""\n'
PAGE = (
    "# Map\n\n<!-- `make map` writes this table from the rooms' docstrings. -->\n"
    "<!-- Here the table ends. -->\n\nText.\n"
)
TABLE = """\
| 0, over `below/` | `low/` | Words: a `b` | c |
| 3 | `high/` | Words: d | e and f |
|  | `tools/sessiontree_tools/` | Words: tools; imports `contracts/` only | g |
"""


@pytest.fixture
def small(tmp_path: Path, checkout: Path) -> Path:
    """A checkout with two rooms, the tools, and a page without its table."""
    rooms = {
        "sessiontree/high": ROOM.format(holds="d", floor=3, absent="e\nand f"),
        "sessiontree/low": ROOM.format(holds="a ``b``", floor="0, over ``below``", absent="c"),
        "tools/sessiontree_tools": ROOM.format(holds="tools", floor=9, absent="g"),
    }
    for room, text in rooms.items():
        (tmp_path / room).mkdir(parents=True)
        (tmp_path / room / "__init__.py").write_text(text, "utf-8")
    (tmp_path / "ARCHITECTURE.md").write_text(PAGE, "utf-8")
    (tmp_path / ".ci").mkdir()
    script = (checkout / ".ci" / "write_map.py").read_text("utf-8")
    (tmp_path / ".ci" / "write_map.py").write_text(script, "utf-8")
    return tmp_path


def run_script(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a checkout."""
    command = [sys.executable, str(checkout / ".ci" / "write_map.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_map_is_what_the_rooms_say(checkout: Path) -> None:
    """``make map`` would change nothing."""
    assert run_script(checkout, "--check").returncode == 0, "run make map"
    assert len((checkout / "ARCHITECTURE.md").read_text("utf-8").splitlines()) <= MAX_LINES


def test_stale_map_is_found_and_written(small: Path) -> None:
    """Rooms are in the order of their floors; what is around the table stays."""
    assert run_script(small, "--check").returncode == 1
    assert run_script(small).returncode == 0
    written = (small / "ARCHITECTURE.md").read_text("utf-8")
    assert TABLE in written
    assert written.startswith("# Map\n")
    assert written.endswith("\n\nText.\n")
    assert run_script(small, "--check").returncode == 0
    room = small / "sessiontree" / "high" / "__init__.py"
    room.write_text(room.read_text("utf-8").replace("e\nand f", "everything"), "utf-8")
    assert run_script(small, "--check").returncode == 1


def test_room_that_says_too_little_is_named(small: Path) -> None:
    """A room without its floor, or without what is not there."""
    (small / "sessiontree" / "low" / "__init__.py").write_text('"""Words."""\n', "utf-8")
    ended = run_script(small)
    assert ended.returncode != 0
    assert "low" in ended.stderr
    assert "Not here" in ended.stderr
