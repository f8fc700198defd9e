"""Every benchmark runs from nothing and prints what it promises: one JSON object of figures."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROMISED = {
    "spawn": "raw_rpc_us warm_spawn_us warm_ratio cold_actor_ms jailed_warm_ms jailed_cold_ms",
    "approval": "raw_rpc_us depth rule_ratio driver_ratio",
    "dispatch --backend ray": "turn20_us policy_us validate_us raw_rpc_us durable_us handle_call_ratio",
    "sandbox": "start_p50_ms start_p95_ms attempts blocked_user",
    "memory": "raw_hybrid_ms hybrid_ms hybrid_ratio overlap_filtered after_singles_ratio compaction_p99_ms",
    "schema": "tools dialects max_ms lossy idempotent",
    "policy": "tools policy_us policy_first_us compile_us explain_us bare_us policy_ratio",
    "soak": "messages sessions transcript_mib p50_first_ms p50_last_ms",
    "journal": "commit_busy_p50_ms commit_busy_p99_ms facts_per_s evolve_us replay_us",
}


@pytest.mark.slow
@pytest.mark.parametrize("command", PROMISED)
def test_benchmark_prints_its_figures(command: str) -> None:
    """A quick run from a fresh process; each figure is a number above zero."""
    name, *options = command.split()
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options, "--quick", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures.keys() >= set(PROMISED[command].split())
    assert all(figures[name] > 0 for name in PROMISED[command].split())
