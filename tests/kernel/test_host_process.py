"""What still runs in a host's process is counted whole."""

from __future__ import annotations

import threading
from concurrent.futures import wait

from sessiontree.kernel.host_process import MOST_THREADS, CountingExecutor


def test_work_that_was_cancelled_before_it_began_is_not_counted() -> None:
    """Else a host would seem busy for ever, and be ended after each session."""
    executor = CountingExecutor()
    ending = threading.Event()
    running = [executor.submit(ending.wait) for _ in range(MOST_THREADS)]
    queued = executor.submit(ending.wait)
    assert executor.busy == MOST_THREADS + 1
    assert queued.cancel()
    assert executor.busy == MOST_THREADS
    ending.set()
    wait(running)
    executor.shutdown()
    assert executor.busy == 0
