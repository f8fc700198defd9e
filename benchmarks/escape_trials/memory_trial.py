"""Tries every way to take memory outside a command's processes, within small bounds.

``python -m benchmarks.escape_trials.memory_trial WORKSPACE`` does it as the user who starts it. It prints one
JSON object: the name of each way, and what ended it.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.escape_trials import memory_hogs
from sessiontree.contracts.handles.ports import Finished
from sessiontree.sandbox.commands.command_bounds import MIB, Bounds
from sessiontree.sandbox.commands.command_shell import CommandShell

BOUND_BYTES: Final = 96 * MIB
TAKEN_BYTES: Final = 320 * MIB
"""More than the bound, and no danger for the machine."""
TIMEOUT_S: Final = 20.0


async def try_hogs(workspace: Path, bounds: Bounds | None = None) -> dict[str, str]:
    """Try each way after another; return the bound that ended it, or how else it ended."""
    program = workspace / "hogs.py"
    shutil.copyfile(memory_hogs.__file__, program)
    bounds = bounds or replace(Bounds(), memory_bytes=BOUND_BYTES, scratch_bytes=256 * MIB)
    shell = CommandShell(workspace, bounds=bounds)
    told = {}
    for name in memory_hogs.HOGS:
        words = ["exec", "python", "-I", "-S", str(program), name, str(TAKEN_BYTES)]
        told[name] = _outcome(await shell.run(shlex.join(words), timeout_s=TIMEOUT_S))
    return told


def _outcome(finished: Finished) -> str:
    if finished.reason == "limit" and finished.limit is not None:
        return finished.limit
    return f"{finished.reason}: {finished.head}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(try_hogs(Path(sys.argv[1])))))
