"""The command ``sessiontree mcp serve`` as clients start it: stdout holds the protocol, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.system.cli.command_fixtures import COMMAND, Program

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "a test", "version": "1"},
}


async def test_command_serves_a_program_that_starts_it(tmp_path: Path) -> None:
    """A tree answers with the model of the configuration; the command ends with its client."""
    program = Program(tmp_path)
    folder = program.config_home / "sessiontree"
    folder.mkdir(parents=True)
    (folder / "sessiontree.toml").write_text('model = "openai:gpt-5"\n')
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "sessiontree.toml").write_text('model = "openai:evil"\n')  # a notice, on stderr
    async with FakeProvider() as provider:
        known = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": provider.url("openai")}
        server = await asyncio.create_subprocess_exec(
            COMMAND,
            *("mcp", "serve", "--backend", "local", "--workspace", tmp_path / "work"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **program.environment, **known},
        )
        given, said = server.stdin, server.stdout
        assert given is not None
        assert said is not None
        heard: list[dict[str, Any]] = []

        async def ask(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            given.write(f"{json.dumps(request)}\n".encode())
            while not heard or heard[-1].get("id") != number:
                heard.append(json.loads(await said.readline()))
            found: dict[str, Any] = heard[-1]["result"]
            return found

        async with asyncio.timeout(100):
            assert (await ask(1, "initialize", INITIALIZE))["serverInfo"]["name"] == "sessiontree"
            given.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\nno JSON\n')
            done = await ask(2, "tools/call", {"name": "run_tree", "arguments": {"task": "Hello."}})
            assert done["structuredContent"]["text"] == "Hello."
            names = [tool["name"] for tool in (await ask(3, "tools/list", {}))["tools"]]
            assert names == ["run_tree", "send", "status", "cancel"]
            given.close()
            rest = await said.read()
            code = await server.wait()
    assert [line for line in rest.splitlines() if not json.loads(line)] == []
    assert code == 0
