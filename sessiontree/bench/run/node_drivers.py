"""Drivers of a run on the nodes of a cluster: each works on the samples with trees of its own node.

So solvers, scorers and tools of the program run on the node of the trees, journals stay on their node, and a
key that has a name is the node's own. The ledger in the run's directory, on all nodes, divides the samples.
Not here: what a driver does (``runner.py``).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from sessiontree import ConfigError
from sessiontree.api.runtime.ray_door import make_node_work
from sessiontree.api.runtime.runtime_options import TREE_CPUS
from sessiontree.bench.ledger.leases import Tally
from sessiontree.bench.ledger.ledger import Ledger
from sessiontree.bench.results.recorded_run import LEDGER
from sessiontree.bench.run.place.run_place import RunOptions, RunPlace
from sessiontree.bench.run.process_names import own_name
from sessiontree.bench.run.run_start import RunCommand
from sessiontree.bench.run.runner import run_blocking
from sessiontree.bench.run_results import RunResults
from sessiontree.bench.suite.samples import load_samples
from sessiontree.bench.suite.suite import SuiteDefinition
from sessiontree.bench.suite.suite_loader import load_suite
from sessiontree.contracts.settings.placement import Placement
from sessiontree.contracts.values.quick_dataclass import dataclass

LOOK_S: Final = 2.0
_MARK: Final = ".nodes-"
_OF_THE_COMMAND: Final = {"backend", "address", "shards", "progress", "writes", "runtime"}
_OF_THE_CLUSTER: Final = {"backend", "address", "shards", "shard_label", "tree_cpus"}


@dataclass(frozen=True, slots=True)
class DriverOrder:
    """What a node is to work on."""

    suite: str
    """As :func:`load_suite` takes it; a file by its absolute path, which each node has."""
    run_dir: Path
    mark: str
    """A file in the run's directory: a node that does not see it has another directory there."""
    options: Mapping[str, Any]


def drive_here(order: DriverOrder) -> None:
    """Work on a run as a program of this node, until nothing waits. Blocks.

    Raises:
        ConfigError: the directory is another one here, or the run refuses.
    """
    if not (order.run_dir / order.mark).is_file():
        raise ConfigError(
            f"run_dir {str(order.run_dir)!r} is another directory there than for the command; mount the same "
            "one on every node"
        )
    run_blocking(load_suite(order.suite), order.run_dir, order.options)


async def run_on_nodes(suite: SuiteDefinition, name: str, run_dir: Path, options: RunOptions) -> RunResults:
    """Run a suite by a driver on each node of a cluster; this program looks on.

    Args:
        suite: The suite.
        name: How nodes load it.
        run_dir: Directory of the run.
        options: As for a run; ``address`` names the cluster.

    Raises:
        ConfigError: an option is wrong, or no node can work on it.
    """
    if options.address is None:
        raise ConfigError("drivers on the nodes of a cluster need its address; give --address auto")
    place = RunPlace.of(run_dir, suite, await asyncio.to_thread(load_samples, suite), options)
    place.make()
    had_config, mark = place.has_config(), f"{_MARK}{secrets.token_hex(8)}"
    own = own_name()
    async with Ledger(place.path / LEDGER, own, shared=place.is_shared()) as ledger:
        command = RunCommand(place, ledger, own)
        await command.begin(had_config=had_config)
        await command.end()  # it works on no sample, so it gets no part of them
        # A node that does not see this file has another directory at the same path, and would make a run of
        # its own.
        (place.path / mark).touch()
        try:
            order = DriverOrder(name, place.path, mark, _adapt_to_node(options))
            tally = await _watch(place, ledger, order, options.address)
        finally:
            with suppress(OSError):
                (place.path / mark).unlink()
    results = RunResults(place.path)
    await asyncio.to_thread(results.write)
    said = f"{tally.scored:,} of {tally.total:,} samples are scored"
    options.progress.end(said, is_complete=tally.scored == tally.total)
    return results


async def _watch(place: RunPlace, ledger: Ledger, order: DriverOrder, address: str) -> Tally:
    """Show how far the nodes are until they have ended; return it."""
    options, progress = place.options, place.options.progress
    given = options.runtime
    wanted = Placement.model_validate({"label": given.get("shard_label") or {}})
    work = make_node_work(drive_here, (order,), wanted, progress.say)
    cpus = round(options.concurrency * given.get("tree_cpus", TREE_CPUS))
    progress.begin(str(place.path), await ledger.tally(place.epochs, options.limit))
    with progress:
        working = asyncio.create_task(work.run(address, cpus))
        try:
            while not working.done():
                await asyncio.wait([working], timeout=LOOK_S)
                progress.count(await ledger.tally(place.epochs, options.limit))
        finally:
            working.cancel()
            await asyncio.wait([working])
        working.result()
    return await ledger.tally(place.epochs, options.limit)


def _adapt_to_node(options: RunOptions) -> dict[str, Any]:
    """Return the options of a driver on a node: its runtime is its own, on the Ray that it is part of."""
    own = {each.name: getattr(options, each.name) for each in fields(options)}
    runtime = {name: value for name, value in options.runtime.items() if name not in _OF_THE_CLUSTER}
    own = {name: value for name, value in own.items() if name not in _OF_THE_COMMAND}
    return {**own, "runtime": runtime, "writes": "events"}
