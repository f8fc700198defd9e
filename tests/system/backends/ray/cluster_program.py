"""A program with a cluster of three raylets on the loopback interface: trees on each, one raylet killed.

Each message to a tree has an effect, which is counted in a file by the id of its call. One message is under
way while the raylet of its node is killed.

Its arguments are a directory for workspace and state, and one with a short path for Ray. It prints what it
finds as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from sessiontree import (
    FunctionModel,
    ModelRequest,
    PermissionTier,
    Runtime,
    SessionKind,
    SessionTree,
    ShardLost,
    ToolContext,
    script_call,
    tool,
)
from sessiontree.backends.ray.engine.engine_servers import bind_to_loopback
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.models.answers import Answer

LOOPBACK = {"node_ip_address": "127.0.0.1", "num_cpus": 1}
PATIENCE_S = 120.0


@tool(tier=PermissionTier.WORKSPACE)
def effect(ctx: ToolContext) -> str:
    """Have an effect that can be counted."""
    with Path(ctx.workspace_root.parent, "effects").open("a", encoding="utf-8") as file:
        file.write(f"{ctx.tree_id} {ctx.call_id}\n")
    return "done"


def reply(request: ModelRequest) -> Answer:
    """Main has an effect for each message, then says so; a Worker only says so."""
    if request.kind is SessionKind.MAIN and not isinstance(request.messages[-1], ToolResultMessage):
        return script_call("effect")
    return "done"


async def play(base: Path, cluster: Cluster) -> dict[str, Any]:
    """Open a tree on each node, kill the raylet of one, and go on."""
    model, workspace = FunctionModel(reply), base / "workspace"
    workspace.mkdir()
    async with Runtime(base / "state", shards="per-node") as runtime:
        trees = [
            await SessionTree(workspace, model=model, tools=[effect], runtime=runtime).start()
            for _ in range(3)
        ]
        nodes = [(bool(row.node), len(row.trees)) for row in runtime.shards()]
        answers = [await tree.main.send("go") for tree in trees]
        worker = await trees[1].main.spawn("worker", "task")
        answers.append((await worker.result()).summary)
        listed = {row.tree_id for row in await runtime.trees()} == {tree.tree_id for tree in trees}
        lost = next(row for row in runtime.shards() if trees[1].tree_id in row.trees)
        victim = next(each for each in cluster.worker_nodes if each.node_id[:8] in lost.node)
        under_way = trees[1].main.send("under way")
        await asyncio.sleep(0)
        cluster.remove_node(victim, allow_graceful=False)
        error: ShardLost | None = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    await trees[1].main.send("are you there?")
        except ShardLost as found:
            error = found
        others = [await tree.main.send("go on") for tree in (trees[0], trees[2])]
        rows = [row.trees == (trees[1].tree_id,) for row in runtime.shards() if row.lost]
        with suppress(ShardLost):  # or it was answered just before
            await under_way
        again = await SessionTree.resume(trees[1].tree_id, model=model, tools=[effect], runtime=runtime)
        resumed = await again.main.send("and now?")
        counts = Counter((base / "effects").read_text("utf-8").splitlines())
        return {
            "effects_twice": sum(count > 1 for count in counts.values()),
            "effects_missing": max(0, len(answers) - 1 + len(others) + 1 - len(counts)),
            "nodes": nodes,
            "answers": answers,
            "listed": listed,
            "lost_error": error is not None and error.trees == (trees[1].tree_id,),
            "lost_rows": rows,
            "others": others,
            "resumed": resumed,
        }


def main() -> None:
    """Start the cluster, play, and end it."""
    make: Any = Cluster  # Ray leaves its methods untyped
    with bind_to_loopback():
        head = {**LOOPBACK, "include_dashboard": False, "temp_dir": sys.argv[2]}
        cluster = make(initialize_head=True, head_node_args=head)
        try:
            cluster.add_node(**LOOPBACK)
            cluster.add_node(**LOOPBACK)
            ray.init(address=cluster.address, log_to_driver=False)
            print(json.dumps(asyncio.run(play(Path(sys.argv[1]), cluster))), flush=True)  # noqa: T201
        finally:
            ray.shutdown()
            cluster.shutdown()


if __name__ == "__main__":
    main()
