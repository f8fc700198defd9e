"""How many hosts a pool has: it follows the CPUs that Ray counts for the node, not those of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.backends.ray.backend import RayBackend
from sessiontree.backends.ray.engine.engine import RayConnection
from sessiontree.runtime.scheduling.pool import PoolSize


@pytest.mark.parametrize(
    ("cores", "slots", "sharing", "expected"),
    [
        (1, None, 1, PoolSize(most=8, usual=1)),
        (4, None, 1, PoolSize(most=16, usual=4)),
        (64, None, 1, PoolSize(most=256, usual=64)),
        (4, None, 3, PoolSize(most=16, usual=1)),
        (2, None, 5, PoolSize(most=8, usual=1)),
        (8, 3, 1, PoolSize(most=3, usual=3)),
        (8, 3, 4, PoolSize(most=3, usual=2)),
    ],
)
def test_pools_follow_the_cpus_that_ray_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    slots: int | None,
    sharing: int,
    expected: PoolSize,
) -> None:
    """In a container of four CPUs on a machine of 64, 64 hosts would take each other's time and memory."""
    backend = RayBackend(tmp_path, slots=slots, sharing=sharing, enforcement="best_effort")
    monkeypatch.setattr(RayConnection, "core_count", cores)
    assert backend._launch.measure_pool() == expected
