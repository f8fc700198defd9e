"""Work alongside the event loop: its result, its errors, and its end."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.tools import thread_calls
from sessiontree.contracts.tools.context import CallSignals
from sessiontree.contracts.tools.thread_calls import Stop, claim_in_thread, end_if, run_in_call_thread
from sessiontree.testing.context import make_context


async def test_result_and_error_come_back(tmp_path: Path) -> None:
    """What the work returns is returned, what it raises is raised, and it runs elsewhere."""
    ctx = make_context(tmp_path)
    assert await run_in_call_thread(ctx, lambda stop: threading.get_ident()) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await run_in_call_thread(ctx, lambda stop: 1 // 0)


@pytest.mark.parametrize("fails", [False, True])
async def test_cancelled_work_ends_before_the_cancellation_goes_on(tmp_path: Path, fails: bool) -> None:
    """The work learns that nobody waits, puts its things away, and its late error bothers nobody."""
    ctx = make_context(tmp_path)
    begun, ended = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(stop: Stop) -> None:
        loop.call_soon_threadsafe(begun.set)
        while not stop():
            threading.Event().wait(0.001)
        ended.set()
        if fails:
            raise OSError("too late")

    task = asyncio.create_task(run_in_call_thread(ctx, work))
    await begun.wait()
    assert not ended.is_set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.parametrize("when", ["before", "just after", "after 2 s"])
async def test_cancelled_caller_holds_nothing(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the thread acquires after all is released, whenever that is."""
    monkeypatch.setattr(thread_calls, "CLEANUP_LIMIT_S", 0.01 if when == "after 2 s" else 60.0)
    held, released = list[int](), asyncio.Event()
    loop, begun, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def acquire() -> int:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(30)
        held.append(1)
        return 1

    def release(each: int) -> None:
        held.remove(each)
        loop.call_soon_threadsafe(released.set)

    task = asyncio.create_task(claim_in_thread(acquire, release))
    await begun.wait()
    if when == "just after":
        may_end.set()
        while not held:  # the loop has not taken note of it
            pass
    task.cancel()
    if when == "before":
        loop.call_later(0.01, may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    may_end.set()
    await asyncio.wait_for(released.wait(), 30)
    assert held == []


async def test_what_was_acquired_is_kept() -> None:
    """Unless the caller is cancelled; and an error of the thread releases nothing."""
    released = list[int]()
    assert await claim_in_thread(lambda: 7, released.append) == 7
    with pytest.raises(ZeroDivisionError):
        await claim_in_thread(lambda: 1 // 0, released.append)
    assert released == []


async def test_work_is_stopped_by_flag_and_by_deadline(tmp_path: Path) -> None:
    """Both ways a call may be over reach the thread."""
    signals = CallSignals(time.monotonic() + 60)
    ctx = make_context(tmp_path, signals=signals)
    assert not await run_in_call_thread(ctx, lambda stop: stop())
    signals.cancelled = True
    assert await run_in_call_thread(ctx, lambda stop: stop())
    late = make_context(tmp_path, signals=CallSignals(time.monotonic() - 1))
    assert await run_in_call_thread(late, lambda stop: stop())


def test_ending_is_an_error_the_model_may_read() -> None:
    """Stopped work raises; other work goes on."""
    end_if(lambda: False)
    with pytest.raises(ExecutionError, match="cancelled"):
        end_if(lambda: True)
