"""The client that the conformance suite of MCP starts for each scenario: ``python -m … URL``.

It does what an owner and a tree do: it connects as ``sessiontree mcp check``, logs in as ``sessiontree mcp
login`` where the server wants it, accepts the server, and calls each of its tools in a session of a tree. A
person who leaves out what may be left out answers the server's questions. The suite gives the scenario's
arguments of tools in the variable ``MCP_CONFORMANCE_CONTEXT``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from sessiontree import AgentSpec, McpServer, PendingQuestion, ScriptedModel, SessionTree, script_call
from sessiontree.api.configuration.mcp_servers import get_token_folder, write_pin
from sessiontree.contracts.facts.tree_facts import ClientCallOpened
from sessiontree.mcp.elicitation import LEFT_OUT
from sessiontree.mcp.pins import PinnedServer, PinnedTool, compute_identity, pin_listed_tools
from sessiontree.mcp.server_process import ServerProcess, ServerUnavailable, start_server
from sessiontree.mcp.settings import reach
from sessiontree.mcp.tool_names import make_tool_name
from tests.behaviour.fact_fixtures import until
from tests.behaviour.question_fixtures import ENDLESS

NAME: Final = "suite"
VALUES: Final[Mapping[str, Any]] = {"number": 2, "integer": 2, "boolean": True, "object": {}, "array": []}
"""A value of each type; of any other one it is a text."""
LOGIN_S: Final = 300.0
CONNECT_S: Final = 300.0
"""Long enough for a machine that runs all scenarios at the same time."""
MAX_LOGINS: Final = 2


def browse(address: str) -> None:
    """Open an address and follow its redirects, as a browser does."""
    httpx.get(address, follow_redirects=True, timeout=LOGIN_S)


async def log_in(url: str) -> None:
    """Log in at the server."""
    opened: list[asyncio.Task[None]] = []
    process = ServerProcess(NAME)
    process.shown = lambda address: opened.append(asyncio.create_task(asyncio.to_thread(browse, address)))
    try:
        await process.start({"do": "login", "url": url, "tokens": str(get_token_folder())}, LOGIN_S)
    finally:
        await process.close()
    for each in opened:
        await each


async def list_tools(server: McpServer) -> Mapping[str, PinnedTool]:
    """Return the server's tools; log in first if it wants that, and again if it has moved since."""
    assert server.url is not None
    for _ in range(MAX_LOGINS):
        try:
            return await _list(server)
        except ServerUnavailable as error:
            if not error.needs_login:
                raise
        await log_in(server.url)
    return await _list(server)


async def _list(server: McpServer) -> Mapping[str, PinnedTool]:
    process = ServerProcess(NAME)
    try:
        found = await start_server(reach(NAME, server, str(get_token_folder())), process)
        return pin_listed_tools(found.tools)[0]
    finally:
        await process.close()


def arguments_of(tools: Mapping[str, PinnedTool]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the calls of a scenario: those that the suite gives, else one of each tool."""
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")).get("toolCalls")
    if given:
        return [(each["name"], each["arguments"]) for each in given]
    calls: list[tuple[str, Mapping[str, Any]]] = []
    for name, tool in tools.items():
        members = tool.parameters.get("properties") or {}
        if name == "json_schema_echo":
            calls.append((name, {"schema": dict(tools["json_schema_2020_12_tool"].parameters)}))
            continue
        values = {key: VALUES.get(schema.get("type"), "text") for key, schema in members.items()}
        calls.append((name, values))
    return calls


async def answer_all(tree: SessionTree) -> None:
    """Answer each question of the server, until cancelled."""
    answered: set[str] = set()
    while True:
        await until(tree, ClientCallOpened, count=len(answered) + 1)
        for question in tree.questions.pending():
            answered.add(question.question.question_id)
            await question.answer(*(choose(question)))


def choose(question: PendingQuestion) -> Sequence[str]:
    """Return answers: what may be left out is, and of anything else the first option, or a text."""
    chosen = []
    for item in question.question.items:
        labels = [option.label for option in item.options]
        if LEFT_OUT in labels:
            chosen.append(LEFT_OUT)
        else:
            chosen.append("text" if item.allow_free_text else labels[0])
    return chosen


async def use(place: Path, server: McpServer, tools: Mapping[str, PinnedTool]) -> None:
    """Accept the server, and call its tools in a tree."""
    write_pin(
        place / "state", NAME, PinnedServer(identity=compute_identity(server), tools=tuple(tools.values()))
    )
    calls: Any = [
        script_call(make_tool_name(NAME, name), **values)
        for name, values in arguments_of(tools)
        if name in tools
    ]
    model: Any = ScriptedModel({"main": ["hello"], "*": [calls, "done"]} if calls else ["hello"])
    agents = {"default": AgentSpec(tools=tuple(make_tool_name(NAME, name) for name in tools))}
    tree = SessionTree(
        place / "work",
        model=model,
        mcp={NAME: server},
        agents=agents,
        limits=ENDLESS,
        state_dir=place / "state",
        backend="local",
    )
    async with tree, asyncio.TaskGroup() as group:
        answering = group.create_task(answer_all(tree))
        branch = await tree.main.spawn("branch", "Call them.")
        await branch.result()
        answering.cancel()


async def main(url: str) -> None:
    """Be the client of one scenario."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "work").mkdir()
        os.environ["XDG_CONFIG_HOME"] = str(place / "config")
        os.environ["XDG_STATE_HOME"] = str(place / "own")
        server = McpServer(url=url, connect_s=CONNECT_S)
        tools = await list_tools(server)
        tiers = dict.fromkeys(tools, "workspace")
        await use(place, server.model_copy(update={"tiers": tiers}), tools)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
