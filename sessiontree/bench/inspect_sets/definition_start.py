"""Runs the definition of an eval set, and ends with the process that started it.

``python definition_start.py PARENT FILE`` runs a Python file as a program; PARENT is the process that it ends
with. A worker that outlived its runner would write the log of a task that another worker has taken over.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path

_SET_DEATH_SIGNAL = 1


def end_with(parent: int) -> None:
    """Have the kernel kill this process when the parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel knew
        sys.exit(f"the process {parent} that started this one has ended")


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    file = sys.argv[2]
    sys.argv = [file]
    sys.path[0] = str(Path(file).parent)
    runpy.run_path(file, run_name="__main__")
