"""A killed writer: what it acknowledged is there (REL-S40)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sessiontree.journal.journal import Journal

CAREFUL = """
import asyncio, sys
from pathlib import Path
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed

async def write(number, journal):
    for turn in range(10_000):
        text = "x" * (70_000 if turn % 9 == 8 else 99)
        fact = Packed(f"{number}", turn, '{"kind":"said","v":1,"text":"%s"}' % text)
        last_seq, durable = journal.append("tree", [(f"main/b{number}", [fact] * 3), ("", [fact])])
        await durable
        sys.stdout.write(f"{last_seq} {number} {turn}\\n")
        sys.stdout.flush()

async def main():
    journal = Journal.open(Path(sys.argv[1]))
    journal.start(asyncio.get_running_loop())
    await journal.create_tree("tree", {})
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(write(number, journal))

asyncio.run(main())
"""
"""Four sessions append for ever; each prints what was acknowledged."""

HASTY = """
import asyncio, os, signal, sys
from pathlib import Path
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed

async def main():
    journal = Journal.open(Path(sys.argv[1]))
    journal.start(asyncio.get_running_loop())
    await journal.create_tree("tree", {})
    facts = [Packed("0", 0, '{"kind":"said"}')] * 200_000
    last_seq, _ = journal.append("tree", [("main/b0", facts)])
    sys.stdout.write(f"{last_seq} 0 0\\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
"""A writer with a planted bug: it acknowledges before the facts are durable."""


def acknowledged_survives(program: str, state: Path, lines: int) -> None:
    """Property: after SIGKILL each acknowledged append is there, whole, and numbering has no hole."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(state)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        acked = [line.split() for line in (child.stdout.readline() for _ in range(lines)) if line]
        os.kill(child.pid, signal.SIGKILL)
        acked += [line.split() for line in child.stdout if line.endswith("\n")]
    assert child.returncode == -signal.SIGKILL
    assert len(acked) >= lines
    with Journal.open(state) as journal:
        records = journal.read("tree")
        assert journal.verify("tree").ok
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    for last_seq, number, turn in acked:
        appended = records[int(last_seq) - 4 : int(last_seq)]
        assert [record.session for record in appended] == [f"main/b{number}"] * 3 + [""]
        assert {(record.cause, record.at_ms) for record in appended} == {(number, int(turn))}


@pytest.mark.short(1)
@pytest.mark.covers("REL-S40", "DUR1", "DUR2")
@pytest.mark.parametrize("lines", [1, 7, 60, 200])
def test_acknowledged_facts_survive_a_kill(tmp_path: Path, lines: int) -> None:
    """REL-S40: acknowledged means present after SIGKILL, at whatever point it strikes."""
    acknowledged_survives(CAREFUL, tmp_path / "state", lines)


@pytest.mark.covers("REL-S40")
def test_kill_property_notices_a_writer_that_acknowledges_early(tmp_path: Path) -> None:
    """The property of REL-S40 fails on a writer that does not wait for the disk."""
    with pytest.raises(AssertionError):
        acknowledged_survives(HASTY, tmp_path / "state", 1)
