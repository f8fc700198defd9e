"""How long a busy event loop may keep the interpreter from the writer thread.

A thread that comes back from the disk waits one switch interval for the interpreter. The interpreter's
default of 5 ms is paid several times a commit, so it is lowered while any writer is open.
"""

from __future__ import annotations

import sys
import threading

WRITER_INTERVAL_S = 0.0005


class SwitchInterval:
    """Lowers the process's switch interval while at least one holder has it.

    Args:
        interval_s: The interval while held; a shorter one already in force stays.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._holders = 0
        self._before_s = 0.0

    def hold(self) -> None:
        """Lower the interval, if this is the first holder."""
        with self._lock:
            if self._holders == 0:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._interval_s, self._before_s))
            self._holders += 1

    def release(self) -> None:
        """Put the interval back, if this was the last holder."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                sys.setswitchinterval(self._before_s)


WRITERS = SwitchInterval(WRITER_INTERVAL_S)
"""The interval is the process's, and so is its one count of holders."""
