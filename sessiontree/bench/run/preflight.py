"""What is looked at before the first sample: what would lose every sample of a run, on each of its nodes.

Nothing is changed. The model is asked by ``provider_gate.py``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from sessiontree import ConfigError, SandboxSpec
from sessiontree.api.options.app import take_app
from sessiontree.api.runtime.ray_door import call_on_nodes
from sessiontree.bench.results.recorded_run import STATE
from sessiontree.bench.run.place.run_place import WORKSPACES, RunPlace
from sessiontree.bench.suite.suite import read_tree_options
from sessiontree.sandbox import command_confinement
from sessiontree.sandbox.containers.engine import check_engine

LEAST_FREE: Final = 64 * 1024 * 1024
"""Bytes that a disk must have free: the journals of one moment's trees and their workspaces."""


async def check_nodes(place: RunPlace) -> None:
    """Look at this machine, and at each node of the cluster that the run's trees are on.

    Raises:
        ConfigError: a node lacks something; names the node, what it lacks and what to do.
    """
    needs = needs_commands(place)
    given = (str(place.path), needs, find_common_sandbox(place))
    address = place.options.address
    if address is None:
        found = {"this machine": find_node_problem(*given)}
    else:
        answers = await call_on_nodes(address, find_node_problem, *given)
        found = {node: problem or failure for node, (problem, failure) in answers.items()}
    lacking = {node: problem for node, problem in found.items() if problem}
    if lacking:
        said = "; ".join(f"{node}: {problem}" for node, problem in lacking.items())
        raise ConfigError(
            f"no sample was begun, because each would be lost to the same thing: {said}; mend that, then run "
            "the same command"
        )


def needs_commands(place: RunPlace) -> bool:
    """Whether the run's trees surely hold the tool ``exec`` and may use it.

    Where a function makes the trees, or a policy chooses the tools, nobody knows before.
    """
    suite = place.suite
    if callable(suite.tree) or suite.approvals == "never" or suite.sandbox is not None:
        return False
    options = read_tree_options(suite.tree, f"suite {suite.name!r}: tree has")
    app = take_app(options.get("app"), options)
    return app.builtin_tools and app.sandbox is None and options.get("policy") is None


def find_common_sandbox(place: RunPlace) -> SandboxSpec | None:
    """Return the container of all trees, if it is known before: its engine must work."""
    suite = place.suite
    if not callable(suite.tree):
        options = read_tree_options(suite.tree, f"suite {suite.name!r}: tree has")
        own = take_app(options.get("app"), options).sandbox
        if own is not None:
            return own
    return suite.sandbox if isinstance(suite.sandbox, SandboxSpec) else None


def find_node_problem(run_dir: str, needs_commands: bool, sandbox: SandboxSpec | None = None) -> str:
    """Return what a node lacks to run samples, and what to do; empty = nothing.

    Args:
        run_dir: The run's directory.
        needs_commands: Whether commands must be confined there.
        sandbox: The container whose engine must work there.
    """
    problems = []
    if sandbox is not None and (broken := check_engine(sandbox)):
        problems.append(broken)
    if needs_commands and (failure := command_confinement().failure) is not None:
        problems.append(f"{failure}; or leave the tool exec out, such as by App(builtin_tools=False)")
    for place in {Path(run_dir, STATE), Path(run_dir, WORKSPACES)}:
        there = next((each for each in (place, *place.parents) if each.exists()), Path("/"))
        try:
            free = shutil.disk_usage(there).free
        except OSError as error:
            problems.append(f"{str(there)!r} can't be looked at: {error}")
            continue
        if free < LEAST_FREE:
            problems.append(
                f"the disk of {str(there)!r} has {free / 2**20:.0f} MiB free, and a run needs "
                f"{LEAST_FREE / 2**20:.0f} MiB; make room there, or give another directory"
            )
    return "; ".join(problems)
