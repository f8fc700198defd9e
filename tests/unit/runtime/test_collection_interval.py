"""The threshold of searches for garbage: raised while somebody holds it, and then as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from sessiontree.runtime.supervisor.process.collection_interval import CollectionInterval


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Put back what was in force before the test."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(("usual", "held"), [(700, 5_000), (9_000, 9_000), (0, 0)])
def test_threshold_is_raised_while_somebody_holds_it(usual: int, held: int) -> None:
    """The last one puts back what the first one found; one that is higher, or off, stays."""
    gc.set_threshold(usual, 7, 3)
    threshold = CollectionInterval(5_000)
    for _ in range(2):
        threshold.hold()
        assert gc.get_threshold() == (held, 7, 3)
    threshold.release()
    assert gc.get_threshold() == (held, 7, 3)
    threshold.release()
    assert gc.get_threshold() == (usual, 7, 3)
