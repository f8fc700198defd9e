"""A Ray that is started early is the one that the engine uses, and it ends with the process at the latest."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiontree.backends.ray.engine import engine
from sessiontree.backends.ray.engine.engine_settings import RayOptions
from sessiontree.contracts.errors import ConfigError

WITHIN_S = 60.0


class Lease(engine.ClusterLease):
    """A lease that starts nothing."""

    def _run(self) -> None:
        pass


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The leases of this process, which starts none in earnest."""
    monkeypatch.setattr(engine, "ClusterLease", Lease)
    monkeypatch.setattr(engine, "_runs", [])
    yield engine._runs


def test_engine_takes_what_was_started_early(runs: list[Any]) -> None:
    """One Ray is started, however often; an engine with the same wishes is its first user."""
    engine.begin_early()
    engine.begin_early()
    (lease,) = runs
    assert isinstance(lease, Lease)
    entered: object = engine.enter(RayOptions())
    assert entered is lease
    assert runs == [lease]
    assert lease.give_back()


def test_settings_that_are_wrong_are_reported_by_the_engine(
    runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The early start says nothing, and starts nothing."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    engine.begin_early()
    assert runs == []
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE"):
        engine.enter(RayOptions())


UNUSED = """
from sessiontree.backends.ray.engine import engine
engine.begin_early()
print(engine._runs[0].ready.result().home.exists())
"""


@pytest.mark.slow
def test_ray_that_nobody_used_ends_with_its_process() -> None:
    """As when a command fails before its tree opens: no directory is left, nor a process that wrote there."""
    with tempfile.TemporaryDirectory(prefix="own-", dir="/tmp") as place:  # short: sockets have long names
        done = subprocess.run(
            [sys.executable, "-c", UNUSED],
            env={**os.environ, "TMPDIR": place},
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
        assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
        assert list(Path(place).iterdir()) == []
