"""The programs of ``benchmarks.suite``: a suite with an effect for each sample, and a loop without it.

``benchmarks.suite`` says what the figures are. Each program is a process of its own. The suite is run by the
command from this file; ``steady`` measures it next to a direct loop, ``cluster`` runs it on three nodes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import ray

from benchmarks.chaos_program import append
from benchmarks.cluster_program import TestNodes, kill
from benchmarks.processes import MIB, cpu_ms, pss_bytes
from benchmarks.report import Figure
from benchmarks.suite_provider import KEY
from sessiontree import (
    FunctionModel,
    Model,
    ModelPrice,
    ModelRequest,
    PermissionTier,
    ProviderModel,
    Runtime,
    SessionTree,
    ToolContext,
    script_call,
    tool,
)
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.backends.ray.engine.engine_servers import find_listener
from sessiontree.bench import Attempt, Sample, Suite
from sessiontree.bench.ledger.leases import SampleLease
from sessiontree.bench.ledger.ledger_tables import AttemptResult
from sessiontree.bench.run.place.progress import RunProgress

AT_A_TIME: Final = 16
FIGURES: Final = "figures.json"
SAMPLES: Final = "SUITE_SAMPLES"
"""Variable with the number of samples."""
POISON: Final = "SUITE_POISON"
"""Variable with the id of a sample whose tool ends its process."""
DEADLY: Final = "!"
"""How the text of such a sample ends: variables of the command do not reach the hosts of Ray."""
PROVIDER: Final = "SUITE_PROVIDER"
"""Variable with the address of a provider whose model the suite asks; without it a function replies."""
LARGER: Final = 5
"""How many times as many samples the run has after which memory is looked at again."""
LOST_AFTER: Final = 0.3
"""The part of the samples that is scored when a node is lost."""


@tool(tier=PermissionTier.WORKSPACE)
async def note(key: str, ctx: ToolContext) -> str:
    """Have an effect that can be counted, outside the workspace."""
    if key.endswith(DEADLY):
        os._exit(3)
    append(ctx.workspace_root.parents[2] / "effects", f"{key} {ctx.call_id}")
    return f"noted {key}"


def reply(request: ModelRequest) -> Any:
    """Note the sample, then repeat what the tool returned."""
    heard = request.messages[-1].text
    return script_call("note", key=heard) if request.turn == 1 else heard


async def solve(attempt: Attempt[str]) -> str:
    """Send the sample to Main."""
    return await attempt.tree.main.send(attempt.sample.input)


def noted(attempt: Attempt[str]) -> bool:
    """Compare the reply with the target."""
    return bool(attempt.output == attempt.sample.target)


PRICE: Final = ModelPrice(input_per_million=0.0, output_per_million=0.0)
MODEL: Final = FunctionModel(reply, name="noting")
TREE: Final[dict[str, Any]] = {"tools": [note], "builtin_tools": False}


def samples(count: int) -> list[Sample]:
    """Return samples in order."""
    poison = os.environ.get(POISON)
    names = [f"s{number}" for number in range(count)]
    texts = [f"{name}{DEADLY}" if name == poison else name for name in names]
    return [Sample(name, text, f"noted {text}") for name, text in zip(names, texts, strict=True)]


def made(count: int, model: Model = MODEL) -> Suite:
    """Return the suite with so many samples."""
    return Suite("noting", samples(count), solve, noted, tree=TREE, model=model)


def suite() -> Suite:
    """Return the suite as the command runs it."""
    address = os.environ.get(PROVIDER)
    model = ProviderModel("openai:fake", api_key=KEY, base_url=address, price=PRICE) if address else MODEL
    return made(int(os.environ[SAMPLES]), model)


class Marks(RunProgress):
    """Notes when so many samples are scored.

    Args:
        at: The numbers.
    """

    def __init__(self, *at: int) -> None:
        super().__init__()
        self._at = at
        self._count = 0
        self.times: dict[int, float] = {}
        self.cpu: dict[int, int] = {}
        self.pss_mib: dict[int, float] = {}
        self.reached = threading.Event()
        """Set when the last of them is scored."""

    def scored(self, lease: SampleLease, result: AttemptResult) -> None:
        """Note the time and what this process uses."""
        self._count += 1
        if self._count in self._at:
            self.times[self._count] = time.monotonic()
            self.cpu[self._count] = cpu_ms(os.getpid())
            self.pss_mib[self._count] = pss_bytes(os.getpid()) / MIB
            if self._count == self._at[-1]:
                self.reached.set()

    def say(self, text: str) -> None:
        """Show why something was tried again."""
        print(text, file=sys.stderr)


async def direct(place: Path, backend: BackendName, count: int) -> tuple[float, float]:
    """Do the work of so many samples in a plain loop over one runtime.

    Returns:
        Milliseconds a sample, of time and of this process's processor, after the first ones.
    """
    workspace = place / "run" / "workspaces" / "all"  # as deep as the workspaces of the suite
    workspace.mkdir(parents=True)
    began, before, done = 0.0, 0, 0

    async def work(runtime: Runtime, waiting: Iterator[Sample]) -> None:
        nonlocal began, before, done
        for sample in waiting:
            async with SessionTree(workspace, model=MODEL, runtime=runtime, channel=None, **TREE) as tree:
                assert await tree.main.send(sample.input) == sample.target
                await tree.finish("done")
            done += 1
            if done == AT_A_TIME:
                began, before = time.monotonic(), cpu_ms(os.getpid())

    async with Runtime(place / "state", backend=backend) as runtime:
        waiting = iter(samples(count))
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_A_TIME):
                group.create_task(work(runtime, waiting))
        wall_ms, used_ms = (time.monotonic() - began) * 1000, cpu_ms(os.getpid()) - before
        counted = max(1, count - AT_A_TIME)
        return wall_ms / counted, used_ms / counted


async def steady(place: Path, backend: BackendName, count: int) -> dict[str, Figure]:
    """Measure the direct loop before and after the suite, and the suite up to a larger number of samples."""
    loops = [await direct(place / "first", backend, count)]
    marks = Marks(AT_A_TIME, count, LARGER * count)
    results = await made(LARGER * count).run(
        place / "suite" / "run", backend=backend, concurrency=AT_A_TIME, progress=marks
    )
    loops.append(await direct(place / "second", backend, count))
    wall_ms = (marks.times[LARGER * count] - marks.times[AT_A_TIME]) * 1000 / (LARGER * count - AT_A_TIME)
    used_ms = (marks.cpu[LARGER * count] - marks.cpu[AT_A_TIME]) / (LARGER * count - AT_A_TIME)
    direct_ms, direct_used_ms = (sum(each) / len(loops) for each in zip(*loops, strict=True))
    return {
        "scored": results.counts.scored,
        "wall_ms_per_sample": wall_ms,
        "direct_ms_per_sample": direct_ms,
        "overhead_ms_per_sample": wall_ms - direct_ms,
        "overhead_cpu_ms_per_sample": used_ms - direct_used_ms,
        "pss_mib": {str(count): marks.pss_mib[count], str(LARGER * count): marks.pss_mib[LARGER * count]},
        "pss_growth_kib_per_sample": (marks.pss_mib[LARGER * count] - marks.pss_mib[count])
        * 1024
        / ((LARGER - 1) * count),
    }


async def cluster(place: Path, count: int) -> dict[str, Figure]:
    """Run the suite with a shard on each of three nodes; kill the raylet of the last one meanwhile."""
    nodes = TestNodes(place / "ray")
    nodes.join()
    try:
        nodes.add()
        nodes.add()
        marks = Marks(max(1, int(count * LOST_AFTER)))
        killed: list[str] = []

        def lose() -> None:
            marks.reached.wait()
            row = [each for each in _rows() if each["Alive"]][-1]
            raylet = find_listener(Path(row["RayletSocketName"]))
            assert raylet is not None, "a node that is alive listens"
            kill(raylet)
            killed.append(row["NodeID"])

        killer = threading.Thread(target=lose, daemon=True)
        killer.start()
        began = time.monotonic()
        results = await made(count).run(
            place / "run", shards="per-node", concurrency=AT_A_TIME, retries=20, progress=marks
        )
        killer.join()
        counts = results.counts
        return {
            "nodes": 3,
            "killed": len(killed),
            "scored": counts.scored,
            "unscored": counts.total - counts.scored,
            "wall_s": time.monotonic() - began,
        }
    finally:
        ray.shutdown()
        nodes.end()


def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    return sorted(
        rows, key=lambda row: row["NodeID"] == ray.get_runtime_context().get_node_id(), reverse=True
    )


def main(way: str, place: str, backend: str, count: str) -> None:
    """Run one of the programs; write its figures to a file, since Ray prints too."""
    if way == "steady":
        figures = asyncio.run(steady(Path(place), cast("BackendName", backend), int(count)))
    else:
        figures = asyncio.run(cluster(Path(place), int(count)))
    Path(place, FIGURES).write_text(json.dumps(figures), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
