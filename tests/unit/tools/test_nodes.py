"""What ``nodes`` says of the runtime's machines, and how it notifies a person."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import PermissionDenied, ValidationError
from sessiontree.contracts.handles.nodes import NodeInfo, Nodes, find_node
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.runtime.host.outside_handles import LOCAL_NODE, LocalNode
from sessiontree.testing.context import RecordingChannel, call_tool, make_context
from sessiontree_tools.commands.nodes import MAX_NODES, ListNodes

FIRST = NodeInfo("abcd1111", "alpha", True, True, 8.0, 2**33, {"GPU": 1.0}, {"zone": "a"})
SECOND = replace(FIRST, node_id="abcd2222", is_here=False)
THIRD = replace(FIRST, node_id="ffff3333", name="beta", is_here=False)


class FixedNodes:
    """Knows the given nodes."""

    def __init__(self, *known: NodeInfo) -> None:
        self.known = known

    async def nodes(self) -> tuple[NodeInfo, ...]:
        """Return them."""
        return self.known


async def asked(root: Path, nodes: Nodes, **arguments: Any) -> ToolResult:
    """Return what the tool says."""
    return await call_tool(ListNodes(), make_context(root, nodes=nodes), **arguments)


@pytest.mark.covers("S15", "A39")
async def test_local_backend_has_this_machine(tmp_path: Path) -> None:
    """Alive, here, with its own name and what it has; its name describes it."""
    listed = await asked(tmp_path, LocalNode(), action="status")
    name = platform.node() or LOCAL_NODE
    row = {"node_id": LOCAL_NODE, "name": name, "alive": True, "here": True}
    assert listed.output == {"nodes": [row], "left_out": 0}
    described = await asked(tmp_path, LocalNode(), action="describe", node=name)
    assert isinstance(described.output, dict)
    assert described.output.items() >= row.items()
    found = await LocalNode().nodes()
    assert described.output["cpus"] == found[0].cpus >= 1
    assert found[0].memory_bytes > 2**27


@pytest.mark.parametrize(
    ("name", "found"),
    [("beta", "ffff3333"), ("ffff", "ffff3333"), ("abcd2222", "abcd2222"), ("abcd1", "abcd1111")],
)
async def test_node_has_a_name_and_an_id(tmp_path: Path, name: str, found: str) -> None:
    """The beginning of an id is enough, if only one begins so."""
    told = await asked(tmp_path, FixedNodes(FIRST, SECOND, THIRD), action="describe", node=name)
    assert isinstance(told.output, dict)
    assert (told.output["node_id"], told.output["labels"]) == (found, {"zone": "a"})


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"action": "describe"}, "/node"),
        ({"action": "describe", "node": "alpha"}, "/node"),
        ({"action": "describe", "node": "abcd"}, "/node"),
        ({"action": "describe", "node": "fff"}, "/node"),
        ({"action": "describe", "node": "gamma"}, "/node"),
        ({"action": "notify"}, "/text"),
        ({"action": "notify", "text": " \n"}, "/text"),
        ({"action": "camera"}, "/action"),
    ],
)
async def test_bad_arguments_are_named(tmp_path: Path, arguments: dict[str, Any], field: str) -> None:
    """Also names of several nodes, and actions that do not exist here."""
    with pytest.raises(ValidationError) as raised:
        await asked(tmp_path, FixedNodes(FIRST, SECOND, THIRD), **arguments)
    assert raised.value.field == field


@pytest.mark.parametrize(
    "arguments", [{}, {"node": "alpha"}, {"command": "true"}, {"node": "alpha", "command": " \n"}]
)
async def test_command_needs_a_node(tmp_path: Path, arguments: dict[str, str]) -> None:
    """And a node needs a command."""
    with pytest.raises(ValidationError, match="run needs a node and a command"):
        await asked(tmp_path, FixedNodes(FIRST), action="run", **arguments)


@pytest.mark.covers("S52", "JOB10")
def test_command_runs_on_no_node_that_has_left() -> None:
    """Neither by its id nor by its beginning; a living one of the same beginning is meant."""
    gone = replace(SECOND, is_alive=False)
    for name in ("abcd2222", "abcd22"):
        assert find_node(name, [gone, THIRD]) == gone
        with pytest.raises(ValidationError, match="has left the cluster; there are beta"):
            find_node(name, [gone, THIRD], alive=True)
    assert find_node("abcd", [FIRST, gone], alive=True) == FIRST
    with pytest.raises(ValidationError, match="several nodes have the name 'abcd'"):
        find_node("abcd", [FIRST, SECOND], alive=True)


async def test_large_cluster_is_cut(tmp_path: Path) -> None:
    """The first hundred, and how many more."""
    many = FixedNodes(*(replace(FIRST, node_id=f"{at:08d}") for at in range(MAX_NODES + 7)))
    told = await asked(tmp_path, many, action="status")
    assert isinstance(told.output, dict)
    rows = told.output["nodes"]
    assert isinstance(rows, list)
    assert (len(rows), told.output["left_out"]) == (MAX_NODES, 7)


async def test_notice_goes_to_the_channel(tmp_path: Path) -> None:
    """Once, as given; without a channel it is refused. A Worker never holds the handle."""
    channel = RecordingChannel()
    ctx = make_context(tmp_path, nodes=FixedNodes(), channel=channel)
    assert (await call_tool(ListNodes(), ctx, action="notify", text="ready")).output == {"notified": True}
    assert channel.sent == ["ready"]
    mute = make_context(tmp_path, nodes=FixedNodes(), channel=None)
    with pytest.raises(PermissionDenied, match="holds no channel"):
        await call_tool(ListNodes(), mute, action="notify", text="ready")
    with pytest.raises(ValueError, match="never holds a nodes"):
        make_context(tmp_path, SessionKind.WORKER, nodes=FixedNodes())
