"""A commit asks the system to sync its bytes, and is not acknowledged where that fails (REL-S40)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_DISK = """
import asyncio, errno, platform, sys
from pathlib import Path
from sessiontree.contracts.errors import SessionTreeError
from sessiontree.journal import journal as journals, writer as writers, tables
from sessiontree.journal.record import Packed
from sessiontree.sandbox import jail

PLAIN = tables.connect_writer

def connect_carelessly(path):
    connection = PLAIN(path)
    connection.execute("PRAGMA synchronous=OFF").fetchall()
    return connection

if sys.argv[2] == "careless":
    for module in (journals, writers, tables):
        if hasattr(module, "connect_writer"):
            module.connect_writer = connect_carelessly

SYNC, DATASYNC = {"x86_64": (74, 75), "aarch64": (82, 83)}[platform.machine()]
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
FAILS = 0x00050000 | errno.EIO

async def main():
    journal = journals.Journal.open(Path(sys.argv[1]))
    here = jail.detect_machine()
    lines = [(LOAD, 0, ""), (EQUAL, SYNC, "fails"), (EQUAL, DATASYNC, "fails"),
             (RETURN, jail.ALLOW, ""), (RETURN, FAILS, "fails:")]
    jail.renounce_privileges()
    jail.filter_calls(here, jail.assemble(lines))  # every thread from here on
    journal.start(asyncio.get_running_loop())
    try:
        await journal.create_tree("tree", {})
        _, durable = journal.append("tree", [("", [Packed("0", 0, '{"kind":"said","v":1}')])])
        await durable
    except SessionTreeError as error:
        print("refused")
    else:
        print("acknowledged")
    sys.stdout.flush()

asyncio.run(main())
"""
"""A journal whose disk takes nothing from the moment at which it starts to write."""


def said_without_disk(place: Path, how: str) -> str:
    """Return what a journal answers that can't sync; its writer connects as given."""
    program = [sys.executable, "-c", WITHOUT_DISK, str(place), how]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout, done.stderr
    return done.stdout.strip()


@pytest.mark.covers("REL-S40", "DUR2")
@pytest.mark.slow
def test_nothing_is_acknowledged_that_the_disk_did_not_take(tmp_path: Path) -> None:
    """What the kernel was asked counts, not what a setting says; a careless journal is noticed."""
    assert said_without_disk(tmp_path / "careful", "careful") == "refused"
    assert said_without_disk(tmp_path / "careless", "careless") == "acknowledged"
