"""Whatever moment an interrupt comes in, nothing that the loop waits for stays locked."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import pytest

from sessiontree.sync.portal import CallFuture, InterruptibleCondition

SECONDS = 1.5
EVERY_S = 0.000_2


class Interrupted(Exception):
    """The interrupt of this test: at any instruction of the main thread."""


@contextmanager
def interrupted_often() -> Iterator[None]:
    """Interrupt the main thread again and again."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        for _ in range(3):  # the last one may come in just here
            with suppress(Interrupted):
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def leaves_it_locked(condition: threading.Condition, use: Callable[[], object]) -> bool:
    """Use a condition while interrupts come in; return whether it was ever left locked."""
    until = time.monotonic() + SECONDS
    with interrupted_often():
        while time.monotonic() < until:
            try:
                signal.setitimer(signal.ITIMER_REAL, EVERY_S)
                while True:
                    use()
            except Interrupted:
                pass
            if condition._is_owned():  # type: ignore[attr-defined]  # typeshed leaves it out
                return True
    return False


def entered(condition: threading.Condition) -> None:
    """Enter and leave."""
    with condition:
        pass


def waited(condition: threading.Condition) -> None:
    """Enter, wait for nobody, leave."""
    with condition:
        condition.wait(0.000_05)


@pytest.mark.slow
@pytest.mark.parametrize("use", [entered, waited])
def test_interrupt_leaves_no_condition_locked(use: Callable[[threading.Condition], None]) -> None:
    """Entered, left, or waited on."""
    condition = InterruptibleCondition()
    assert not leaves_it_locked(condition, lambda: use(condition))


def test_standard_librarys_condition_is_left_locked() -> None:
    """Planted bug: what this is for can be seen, so the test above can fail."""
    condition = threading.Condition()
    assert leaves_it_locked(condition, lambda: entered(condition))


@pytest.mark.slow
def test_interrupted_future_still_takes_its_result() -> None:
    """The loop's thread is never kept waiting by a thread that gave up."""
    future: CallFuture[int] = CallFuture()
    assert not leaves_it_locked(future._condition, lambda: (future.done(), future.wait(0.000_05)))
    settling = threading.Thread(target=future.set_result, args=(7,))
    settling.start()
    settling.join(5)
    assert not settling.is_alive()
    assert future.wait(0)
    assert future.result() == 7
