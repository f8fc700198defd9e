"""A watch over descriptors and child processes."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest


@pytest.fixture
def nothing_left() -> Callable[[], AbstractContextManager[None]]:
    """Return a context manager that fails if its block leaves a descriptor or child process behind."""

    @contextmanager
    def watched() -> Iterator[None]:
        descriptors, children = _descriptors(), _children()
        yield
        # What an earlier test left to the end of a thread may vanish meanwhile.
        assert (_descriptors() - descriptors, _children() - children) == (set(), set())

    return watched


def _descriptors() -> set[str]:
    gc.collect()  # what other tests dropped is not ours to see vanish
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{link.name} {link.readlink()}")
        except FileNotFoundError:  # the listing's own
            continue
    return found


def _children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found.update((task / "children").read_text().split())
    return found
