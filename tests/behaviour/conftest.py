"""Fixtures of the behaviours: a way to open trees, for each backend, and the board that doubles use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sessiontree import Runtime
from tests.behaviour.replay_fixtures import replays_of
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import BACKENDS, TRAVELLED, Opener


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker of tests whose trees share no runtime."""
    config.addinivalue_line("markers", "own_runtime: each tree of the test has a runtime of its own")
    config.addinivalue_line("markers", "on_ray: the test's first case runs on Ray in `make test` too")


ON_RAY = "ray"
SHORT = {TRAVELLED: 1}
"""How many tests of a file run in `make test` on a variant that repeats what the local backend showed."""


def _stays(item: pytest.Item, name: str, kept: list[str]) -> bool:
    """Whether a test's first case on a variant runs in `make test`, besides those that are kept already.

    On Ray it does if it is marked, as a test is whose proof depends on what crosses processes.
    """
    if item.name.partition("[")[0] in kept:
        return False
    if name == ON_RAY:
        return item.get_closest_marker("on_ray") is not None
    return len(kept) < SHORT[name]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as long what a short form stands for: of a variant, the first cases of a few tests stay.

    Every behaviour runs on the local backend in `make test`, and on every variant in `make test-long`.
    """
    kept: dict[tuple[Path, str], list[str]] = {}
    repeated = [
        (item, callspec.params["variant"])
        for item in items
        if (callspec := getattr(item, "callspec", None)) is not None
        and callspec.params.get("variant") in (*SHORT, ON_RAY)
        and not item.get_closest_marker("long")
    ]
    for item, name in sorted(repeated, key=lambda row: (row[0].path, row[0].reportinfo()[1] or 0)):
        tests = kept.setdefault((item.path, name), [])
        if _stays(item, name, tests):
            tests.append(item.name.partition("[")[0])
        else:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session", autouse=True)
def board() -> Iterator[Switchboard]:
    """The switchboard of the run; begun before any test, so that no test seems to have left it behind."""
    switchboard = Switchboard()
    assert switchboard.is_quiet(5.0), "its thread has opened what it needs, and answers"
    yield switchboard
    switchboard.close()


@pytest.fixture(
    params=(*BACKENDS, *(pytest.param(name, marks=pytest.mark.slow) for name in (TRAVELLED, "ray")))
)
def variant(request: pytest.FixtureRequest) -> str:
    """Name of a backend, or of the local one with doubles that travelled and a runtime for all trees."""
    name: str = request.param
    return name


@pytest.fixture
async def open_tree(request: pytest.FixtureRequest, variant: str, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens trees on the backend, in an empty workspace."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    if variant == "ray":
        runtime = request.getfixturevalue("ray_runtime")
        own = request.node.get_closest_marker("own_runtime") is not None
        yield Opener("ray", workspace, tmp_path / "state", shared=None if own else runtime)
        return
    opener = Opener("local", workspace, tmp_path / "state", travels=variant == TRAVELLED)
    if variant != TRAVELLED or request.node.get_closest_marker("own_runtime") is not None:
        yield opener
    else:
        async with Runtime(tmp_path / "shared", backend="local") as runtime:
            yield Opener("local", workspace, tmp_path / "state", travels=True, shared=runtime)
    for report in replays_of(tmp_path):
        assert report.difference is None, report
