"""A program whose shards follow a cluster's nodes, with a model whose key is in a variable of each node.

Its arguments are a directory for workspace and state, and one with a short path for Ray. The provider answers
each key with the key's number. Nodes without the label ``takes=trees`` get none. It prints what it finds as
JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from sessiontree import ConfigError, ModelPrice, ProviderModel, Runtime, SessionTree
from sessiontree.api.runtime.sharded_backend import ShardedBackend
from sessiontree.backends.ray.engine.engine_servers import bind_to_loopback
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest

LOOPBACK: dict[str, Any] = {"node_ip_address": "127.0.0.1", "num_cpus": 1}
VARIABLE = "NODE_KEY"
PATIENCE_S = 120.0


def reply(request: FakeRequest) -> FakeReply:
    """Say which key asks; without one, refuse."""
    key = request.headers.get("authorization", "")
    if not key.startswith("Bearer sk-node-"):
        return FakeReply(status=401, error="no key")
    return FakeReply(f"asked with key {key.removeprefix('Bearer sk-node-')}")


class Nodes:
    """A cluster whose nodes have keys of their own in their environment.

    Args:
        folder: Where Ray keeps its files.
    """

    def __init__(self, folder: str) -> None:
        make: Any = Cluster  # Ray leaves its methods untyped
        self.count = 0
        os.environ[VARIABLE] = "sk-node-0"
        head = {**LOOPBACK, "include_dashboard": False, "temp_dir": folder}
        self.cluster = make(initialize_head=True, head_node_args=head)

    def add(self, takes: str = "trees", *, has_key: bool = True) -> Any:
        """Start a node with the next key, or without one; this program keeps its own."""
        self.count += 1
        os.environ[VARIABLE] = f"sk-node-{self.count}" if has_key else ""
        with bind_to_loopback():
            node = self.cluster.add_node(**LOOPBACK, labels={"takes": takes})
        os.environ[VARIABLE] = "sk-node-0"
        return node


async def until(is_so: Any) -> None:
    """Wait until the cluster has noticed something."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.1)


async def play(base: Path, nodes: Nodes) -> dict[str, Any]:
    """Open trees on the first nodes, lose one, add another; say which keys were used."""
    workspace = base / "workspace"
    workspace.mkdir()
    found: dict[str, Any] = {}
    async with (
        FakeProvider(reply) as provider,
        Runtime(base / "state", shards="per-node", shard_label={"takes": "trees"}, tree_cpus=1) as runtime,
    ):
        url, price = provider.url("openai"), ModelPrice(input_per_million=1, output_per_million=1)

        async def ask(
            key: str | None = f"env:{VARIABLE}", text: str | None = None
        ) -> tuple[SessionTree, str]:
            model = ProviderModel("openai:fake", key=key, api_key=text, base_url=url, price=price)
            tree = await SessionTree(workspace, model=model, runtime=runtime).start()
            return tree, str(await tree.main.send("who asks?"))

        first = [await ask() for _ in range(2)]
        found["first"] = sorted(said for _, said in first)
        found["own_trees"] = len(runtime.shards()[0].trees)
        try:
            await ask(None, "sk-node-text")
        except ConfigError as error:
            found["text"] = str(error)
        assert isinstance(runtime.backend, ShardedBackend)
        lost = runtime.shards()[1]
        victim = next(each for each in nodes.cluster.worker_nodes if each.node_id[:8] in lost.node)
        nodes.cluster.remove_node(victim, allow_graceful=False)
        await until(lambda: any(row.lost for row in runtime.shards()))
        nodes.add()
        await until(lambda: len(runtime.shards()) == 4)
        later = [await ask() for _ in range(2)]
        found["later"] = sorted(said for _, said in later)
        nodes.add(has_key=False)
        await until(lambda: len(runtime.shards()) == 5)
        try:
            await ask()
        except ConfigError as error:
            found["no_key"] = str(error)
        table = await asyncio.to_thread(ray.util.placement_group_table)
        found["reserved"] = sum(each["state"] != "REMOVED" for each in table.values())
    table = await asyncio.to_thread(ray.util.placement_group_table)
    found["reserved_after"] = sum(each["state"] != "REMOVED" for each in table.values())
    return found


def main() -> None:
    """Start the cluster, play, and end it."""
    with bind_to_loopback():
        nodes = Nodes(sys.argv[2])
        try:
            nodes.add("none")
            nodes.add()
            nodes.add()
            ray.init(address=nodes.cluster.address, log_to_driver=False)
            print(json.dumps(asyncio.run(play(Path(sys.argv[1]), nodes))), flush=True)  # noqa: T201
        finally:
            ray.shutdown()
            nodes.cluster.shutdown()


if __name__ == "__main__":
    main()
