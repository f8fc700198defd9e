"""Every benchmark prints what it promises: one JSON object of figures."""

from __future__ import annotations

import asyncio
import importlib
import json
import math
from pathlib import Path

import pytest

from sessiontree import Runtime, ScriptedModel, SessionTree

PROMISED = {
    "spawn": "raw_rpc_us warm_spawn_us warm_ratio cold_actor_ms jailed_warm_ms jailed_cold_ms",
    "approval": "raw_rpc_us depth rule_ratio driver_ratio",
    "dispatch --backend ray": "turn20_us policy_us validate_us raw_rpc_us durable_us handle_call_ratio",
    "gateway": "raw_rpc_us direct_us call_us added_calls delta_ratio waiting_mib deltas_per_s host_used_mib",
    "sandbox": "start_p50_ms start_p95_ms attempts blocked_user",
    "memory": "raw_hybrid_ms hybrid_ms hybrid_ratio overlap_filtered after_singles_ratio compaction_p99_ms",
    "schema": "tools dialects max_ms lossy idempotent",
    "policy": "tools policy_us policy_first_us compile_us explain_us bare_us policy_ratio",
    "soak": "messages sessions transcript_mib p50_first_ms p50_last_ms",
    "history": "bytes_ratio seconds_ratio journal_bytes_100 question_bytes compaction_bytes compacted_bytes",
    "tree --backend ray": "sessions wall_s warmup_s sessions_per_s facts_per_session live_actors_max"
    " idle_pss_mib peak_pss_mib raw_actors_per_s ratio_raw",
    "tree --backend local --sessions 20": "sessions wall_s warmup_s sessions_per_s facts_per_session",
    "waiting --sessions 12": "sessions replies wait_s ideal_s wall_s ratio short_ratio cpu_ms_per_turn",
    "cluster --nodes 2": "nodes sessions cpu_ratio rate_ratio trees_others trees_gone_on trees_lost_reported"
    " lost_reported_s trees_resumed resumed_s",
    "wake": "raw_rpc_us resident_us wake_2kb_us wake_100kb_us wake_2kb_ratio wake_100kb_ratio",
    "journal": "commit_busy_p50_ms commit_busy_p99_ms facts_per_s evolve_us replay_us",
}
SHORT = {
    "schema",
    "policy",
    "history",
    "tree --backend local --sessions 20",
    "journal",
}
"""What takes a few seconds. The others start many processes, or run for a while by design."""
DIFFERENCES = {"added_calls", "waiting_mib"}
"""Figures that are small differences of large ones: on a busy machine they may be below zero."""


@pytest.fixture
def engine(ray_runtime: Runtime, tmp_path: Path) -> None:
    """A Ray that runs: benchmarks in this process join it, they start none of their own."""

    async def start() -> None:
        async with SessionTree(tmp_path, model=ScriptedModel(["done"]), runtime=ray_runtime) as tree:
            await tree.main.send("start it")

    asyncio.run(start())


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=[] if each in SHORT else [pytest.mark.long]) for each in PROMISED],
)
def test_benchmark_prints_its_figures(engine: None, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """One JSON object and nothing else; each figure is a number above zero or a difference of two."""
    name, *options = command.split()
    importlib.import_module(f"benchmarks.{name}").main([*options, "--quick", "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert figures.keys() >= set(PROMISED[command].split())
    promised = {name: figures[name] for name in PROMISED[command].split()}
    assert {name: each for name, each in promised.items() if not math.isfinite(each)} == {}
    assert {name: each for name, each in promised.items() if each <= 0}.keys() <= DIFFERENCES
