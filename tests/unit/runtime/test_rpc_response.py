"""Errors on their way to another process arrive as what they were, or as words."""

from __future__ import annotations

import pickle
import threading

import pytest

from sessiontree import SessionTreeError
from sessiontree.contracts.errors import LimitExceeded
from sessiontree.runtime.transport.rpc import make_portable


class Particular(Exception):
    """Can be packed, and not opened again."""

    def __init__(self, one: str, *, other: str) -> None:
        super().__init__(one)
        self.other = other


class Locked(SessionTreeError):
    """Holds what can't be packed."""

    def __init__(self) -> None:
        super().__init__("it holds a lock")
        self.lock = threading.Lock()


@pytest.mark.parametrize("error", [Particular("it is so", other="so"), Locked()])
def test_error_that_can_not_travel_arrives_in_words(error: Exception) -> None:
    """The program hears of it as of an error of this library, never as one of the way there."""
    arrived = pickle.loads(pickle.dumps(make_portable(error)))
    assert type(arrived) is SessionTreeError
    assert str(error) in str(arrived)


def test_error_of_this_library_arrives_as_it_is() -> None:
    """With its type and its fields."""
    arrived = pickle.loads(pickle.dumps(make_portable(LimitExceeded("main", "max_depth", 5, 4))))
    assert isinstance(arrived, LimitExceeded)
    assert arrived.limit == "max_depth"
