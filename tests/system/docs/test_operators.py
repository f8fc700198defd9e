"""The operators' page: the values that it names are those of the code."""

from __future__ import annotations

from pathlib import Path

from sessiontree.backends.ray.engine.engine_settings import OBJECT_STORE_BYTES, SYSTEM_CONFIG
from sessiontree.backends.ray.supervisor import CONTROL_CALLS, HOST_OPTIONS, MEMORY_OPTIONS, SUPERVISOR_CALLS


def test_settings_of_ray_are_those_in_use() -> None:
    """Every number in the table of Ray's settings is the constant that the runtime passes to Ray."""
    text = (Path(__file__).parents[3] / "docs" / "operators.md").read_text(encoding="utf-8")
    table = text.partition("### Settings of Ray")[2].partition("\n## ")[0]
    answer_ms = SYSTEM_CONFIG["health_check_period_ms"] + SYSTEM_CONFIG["health_check_timeout_ms"]
    hours, rest = divmod(SYSTEM_CONFIG["gcs_rpc_server_reconnect_timeout_s"], 3_600)
    assert rest == 0
    for row in (
        f"| object store | {OBJECT_STORE_BYTES // 2**20} MiB |",
        f"| {SUPERVISOR_CALLS:,}, and {CONTROL_CALLS:,} control calls",
        f"| {MEMORY_OPTIONS['max_concurrency']:,} and {HOST_OPTIONS['max_concurrency']:,} |",
        f"| lost after {SYSTEM_CONFIG['health_check_failure_threshold']} times {answer_ms // 1000} s |",
        f"| ended after {hours} hours,",
    ):
        assert row in table
    assert (MEMORY_OPTIONS["max_restarts"], HOST_OPTIONS["max_restarts"]) == (-1, 0)
