"""A program that runs commands on other nodes of a cluster: three raylets, of which one is killed.

Its arguments are a directory for workspace and state, and one with a short path for Ray. It prints what it
finds as JSON. As root, the nodes have mounts of their own, and on one the workspace is another directory.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from sessiontree import (
    AgentConfig,
    AgentSpec,
    ExecutionError,
    FunctionModel,
    Limits,
    ModelRequest,
    Runtime,
    SessionHandle,
    SessionKind,
    SessionTree,
    ToolReply,
    ValidationError,
    script_call,
)
from sessiontree.backends.ray.engine.engine_servers import bind_to_loopback
from sessiontree.models.answers import Answer
from tests.system.backends.ray.placement_program import (
    IS_ROOT,
    LOOPBACK,
    SLEEP_S,
    STATE,
    Nodes,
    sleepers,
    until,
)

AGENTS = {"default": AgentSpec(tools=["exec", "process"], config=AgentConfig(exec_hosts=frozenset({"node"})))}
SLEEPING = f"pwd; setsid sleep {SLEEP_S} & sleep {SLEEP_S}"
HUGE_BYTES = 20_000_000


def reply(request: ModelRequest) -> Answer:
    """Answer at once; a Branch first starts a command on the node that its task names."""
    if request.kind is SessionKind.MAIN:
        return "done"
    node, how = request.messages[0].text.split()
    if request.turn == 1:
        return script_call("exec", command=SLEEPING, host="node", node=node, background=how == "job")
    return "done"


async def run(session: SessionHandle, node: str, command: str, **more: Any) -> ToolReply:
    """Run a command on a node; return the result."""
    return await session.call("exec", {"command": command, "host": "node", "node": node, **more})


def facts_of(reply: ToolReply) -> dict[str, Any]:
    """Return what the journal keeps of a result."""
    assert isinstance(reply.details, dict)
    found = reply.details["details"]
    assert isinstance(found, dict)
    return found


async def job(session: SessionHandle, node: str) -> str:
    """Start a job that sleeps twice; return its id once both do."""
    before = sleepers()
    started = await run(session, node, SLEEPING, background=True)
    await until(lambda: sleepers() == before + 2)
    return str(facts_of(started)["job_id"])


async def look(tree: SessionTree, first: str, second: str) -> dict[str, Any]:
    """Run commands that end by themselves."""
    found: dict[str, Any] = {}
    names = {each["NodeID"]: each["NodeManagerHostname"] for each in ray.nodes()}  # type: ignore[no-untyped-call]
    for name in (names[first], f" {names[first]} ", "no node"):
        try:
            await run(tree.main, name, "true")
        except ValidationError as error:
            found.setdefault("refused", []).append(error.message.split(";")[0].replace(names[first], "NAME"))
    there = await run(tree.main, first[:12], "echo $RAY_JOB_ID$RAY_AUTH_TOKEN; pwd; cat given; exit 5")
    found["workspace"] = str(there.output).splitlines()
    elsewhere = await run(tree.main, second, "umask 777; mkdir a; touch a b; pwd; ls -A | wc -l")
    found["elsewhere"] = str(elsewhere.output).splitlines()
    many = f"head -c {HUGE_BYTES} /dev/zero | tr '\\0' x; echo end"
    huge = await run(tree.main, first, many, yield_ms=200_000)
    found["huge"] = [
        len(str(huge.output)) < 100_000,
        "end\n" in str(huge.output),
        facts_of(huge)["exit_code"],
    ]
    slow = await run(tree.main, first, f"sleep {SLEEP_S}", timeout=0.5)
    found["slow"] = [facts_of(slow)["reason"], sleepers()]
    return found


async def end(tree: SessionTree, node: str) -> dict[str, Any]:
    """End what sleeps in three ways; return how many processes were left each time."""
    found: dict[str, Any] = {}
    killed = await tree.main.call("process", {"action": "kill", "job_id": await job(tree.main, node)})
    found["killed"] = [facts_of(killed)["status"], sleepers()]
    cancelled = await tree.main.spawn("branch", f"{node} call")
    await until(lambda: sleepers() == 2)
    await cancelled.cancel()
    found["cancelled"] = sleepers()
    ended = await tree.main.spawn("branch", f"{node} job")
    await ended.result()
    await until(lambda: sleepers() == 0)
    found["ended"] = sleepers()
    return found


async def lose(tree: SessionTree, node: Any, cluster: Any) -> dict[str, Any]:
    """Kill the raylet of a node on which a job and a command of a call run."""
    job_id = await job(tree.main, node.node_id)
    calling = asyncio.create_task(run(tree.main, node.node_id, SLEEPING))
    await until(lambda: sleepers() == 4)
    await asyncio.to_thread(cluster.remove_node, node, allow_graceful=False)
    try:
        await calling
        error = "none"
    except ExecutionError as lost:
        error = lost.message
    await until(lambda: sleepers() == 0)

    async def status() -> str:
        told = await tree.main.call("process", {"action": "poll", "job_id": job_id, "wait_ms": 60_000})
        return str(facts_of(told)["status"])

    try:
        await run(tree.main, node.node_id, "true")
        again = "it ran"
    except (ValidationError, ExecutionError) as refused:  # Ray may not have noticed the loss yet
        again = refused.message
    return {
        "call": "ended is not known" in error and "look at what it changed" in error,
        "job": await status(),
        "left": sleepers(),
        "again": "has left the cluster" in again or "was not started" in again,
    }


async def kill(tree: SessionTree, node: str, runtime: Runtime) -> dict[str, Any]:
    """Kill the host of a session whose job runs on a node, and then the supervisor; count what is left."""
    found: dict[str, Any] = {}
    for killed in ("host", "supervisor"):
        job_id = await job(tree.main, node)
        polled = await tree.main.call("process", {"action": "poll", "job_id": job_id, "offset": 0})
        place = next(line for line in str(polled.output).splitlines() if line.startswith("/"))
        rows = await runtime.backend.actors()  # type: ignore[attr-defined]  # the Ray backend's
        pid = next(row.pid for row in rows if killed in {row.role, "host" if row.session == "main" else ""})
        os.kill(pid, signal.SIGKILL)
        await until(lambda: sleepers() == 0)
        await until(lambda where=place: not IS_ROOT or not Path(where).exists())  # type: ignore[misc]
        found[killed] = sleepers()
    return found


async def play(base: Path, cluster: Any, nodes: Nodes) -> dict[str, Any]:
    """Run everything on a tree whose sessions are on the first node."""
    first, second = nodes.add(), nodes.add(same_workspace=False)
    limits = Limits(max_turns=100_000, max_repeats=None, cancel_grace_s=1)
    model = FunctionModel(reply)
    async with Runtime(STATE) as runtime:
        tree = await SessionTree(
            base / "workspace", model=model, runtime=runtime, limits=limits, agents=AGENTS, approvals="auto"
        ).start()
        found = await look(tree, first.node_id, second.node_id)
        found |= await end(tree, first.node_id)
        found["lost"] = await lose(tree, first, cluster)
        found["kill"] = await kill(tree, second.node_id, runtime)
        found["files"] = nodes.files_of(second) if IS_ROOT else []
    return found


def main() -> None:
    """Start the cluster, play, and end it."""
    base = Path(sys.argv[1])
    for name in ("workspace", "another", "state", "tmp"):
        (base / name).mkdir()
    (base / "workspace" / "given").write_text("given\n", "utf-8")
    tempfile.tempdir = str(base / "tmp")
    make: Any = Cluster  # Ray leaves its methods untyped
    with bind_to_loopback():
        head = {**LOOPBACK, "include_dashboard": False, "temp_dir": sys.argv[2]}
        cluster = make(initialize_head=True, shutdown_at_exit=False, head_node_args=head)
        try:
            ray.init(address=cluster.address, log_to_driver=False)
            found = asyncio.run(play(base, cluster, Nodes(cluster, base)))
            print(json.dumps(found), flush=True)  # noqa: T201
        finally:
            ray.shutdown()
            cluster.shutdown()


if __name__ == "__main__":
    main()
