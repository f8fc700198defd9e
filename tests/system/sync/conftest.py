"""Fixtures of the sync tests: a way to open trees, what doubles share, and the check that nothing is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.sync.portal import PORTAL
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import BACKENDS
from tests.system.sync.model_fakes import Gated
from tests.system.sync.tree_fixtures import PATIENCE_S, Opener

OF_A_RAY = {"sessiontree-engine", "sessiontree-keys", "sessiontree-restarts"}
"""Threads of other tests' Ray, which may be running."""


@pytest.fixture(scope="session", autouse=True)
def board() -> Iterator[Switchboard]:
    """The switchboard of the run, for doubles that may be elsewhere."""
    switchboard = Switchboard()
    yield switchboard
    switchboard.close()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> BackendName:
    """Name of the backend the test runs on."""
    name: BackendName = request.param
    return name


@pytest.fixture
def open_tree(backend: BackendName, tmp_path: Path) -> Opener:
    """Opens sync trees on the backend, in an empty workspace."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Opener(backend, workspace, tmp_path / "state")


@pytest.fixture
def gated(board: Switchboard) -> Gated:
    """A model that answers when it is let."""
    return Gated(board)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """The portal has ended with the test's last tree, and so has every thread of the package.

    A process whose earlier tests showed a tree in a cell keeps the thread of its views.
    """
    before = set(ours())
    yield
    assert [each for each in left_over() if each not in before] == []
    assert (PORTAL._thread, PORTAL._leases, PORTAL._calls) == (None, {}, 0)


def left_over() -> list[threading.Thread]:
    """Return the threads of the package that live, once those of plain functions have had time to go.

    The end of the loop asks them to go, and nobody waits for it.
    """
    for thread in ours():
        if thread.name.startswith("sessiontree-tool"):
            thread.join(PATIENCE_S)
    return ours()


def ours() -> list[threading.Thread]:
    """Return the threads of the package that live, but for those of a Ray."""
    names = {thread: thread.name for thread in threading.enumerate()}
    return [
        thread for thread, name in names.items() if name.startswith("sessiontree") and name not in OF_A_RAY
    ]
