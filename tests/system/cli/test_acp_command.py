"""The command ``sessiontree acp`` as an editor starts it: a process, a pipe, and nothing else on it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from acp import connect_to_agent, text_block
from acp.schema import ClientCapabilities

from tests.system.cli.command_fixtures import COMMAND, Program
from tests.system.cli.provider_fixtures import heard_provider, replies
from tests.system.doors.editor_fixtures import EditorFake, refusal_of

CALL = json.dumps({"command": "echo once >> ran.txt; echo printed", "elevated": True})
CONFIG = """
model = "openai:gpt-5"

[agents.default.config]
exec_hosts = ["host"]
"""


CHECKOUT = Path(__file__).parents[3]
CLIENT = CHECKOUT / "tests/system/doors/editor_client.mjs"
SDK = CHECKOUT / ".ci/clients/node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js"


class AgentProcess:
    """The command in a process of its own, with an editor at its pipe.

    Args:
        process: The process.
        fake: The editor.
    """

    def __init__(self, process: asyncio.subprocess.Process, fake: EditorFake) -> None:
        self.process = process
        self.fake = fake
        self.connection: Any = connect_to_agent(
            cast("Any", fake), process.stdin, process.stdout, use_unstable_protocol=True
        )

    async def end(self) -> int:
        """Leave, and return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = await self.process.wait()
        await self.connection.close()
        return code


def write_config(place: Path) -> Path:
    """Write the owner's configuration, and return where it is."""
    file = place / "owner.toml"
    file.write_text(CONFIG)
    file.chmod(0o600)
    return file


@asynccontextmanager
async def started(
    program: Program, place: Path, backend: str, fake: EditorFake
) -> AsyncIterator[AgentProcess]:
    """Start the command over a workspace, and leave it at the end if it still runs."""
    (place / "work").mkdir(exist_ok=True)
    file = write_config(place)
    with (place / "errors.txt").open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            COMMAND, "acp", "--config", file, "--state-dir", place / "state", "--backend", backend,
            cwd=place / "work", env=program.environment, limit=2**24,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    agent = AgentProcess(process, fake)
    try:
        async with asyncio.timeout(110):
            await agent.connection.initialize(protocol_version=1, client_capabilities=ClientCapabilities())
            yield agent
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await agent.connection.close()


async def run_a_command(program: Program, place: Path, backend: str) -> None:
    """Let a command run after a permission, and see every line that the process prints on its pipe."""
    fake = EditorFake()
    async with started(program, place, backend, fake) as agent:
        lines: list[Any] = []
        agent.connection._conn.add_observer(lines.append)
        session = (await agent.connection.new_session(cwd=str(place / "work"))).session_id
        answer = await agent.connection.prompt(session_id=session, prompt=[text_block("go")])
        assert answer.stop_reason == "end_turn"
        assert fake.text == "All is done."
        assert len(fake.asked) == 1
        assert (place / "work" / "ran.txt").read_text() == "once\n"
        assert "printed" in json.dumps([each.model_dump(mode="json") for each in fake.updates])
        assert await agent.end() == 0
    assert "Error parsing JSON-RPC" not in (place / "errors.txt").read_text()


@pytest.mark.parametrize("backend", ["local", "ray"])
async def test_nothing_else_is_on_the_pipe(
    program: Program, tmp_path: Path, caplog: pytest.LogCaptureFixture, backend: str
) -> None:
    """What Ray and commands print is not; the client reads every line as a message."""
    with heard_provider(
        program, replies({"calls": [{"name": "exec", "arguments": CALL}]}, {"text": "All is done."})
    ):
        await run_a_command(program, tmp_path, backend)
    assert [each.message for each in caplog.records if each.name == "root"] == []


async def test_killed_agent_asks_again(program: Program, tmp_path: Path) -> None:
    """Killed between a request and its answer, its successor asks again, and the command runs once."""
    never = asyncio.Event()

    async def choose(call: Any) -> str:
        await never.wait()
        return ""

    script = replies({"calls": [{"name": "exec", "arguments": CALL}]}, {"text": "All is done."})
    work = tmp_path / "work"
    with heard_provider(program, script):
        fake = EditorFake(choose)
        async with started(program, tmp_path, "local", fake) as agent:
            session = (await agent.connection.new_session(cwd=str(work))).session_id
            prompt = asyncio.create_task(
                agent.connection.prompt(session_id=session, prompt=[text_block("go")])
            )
            await fake.has_asked.wait()
            agent.process.kill()
            with pytest.raises(ConnectionError):
                await prompt
        assert not (work / "ran.txt").exists()
        fake = EditorFake()
        async with started(program, tmp_path, "local", fake) as agent:
            await agent.connection.load_session(session_id=session, cwd=str(work))
            await fake.has_asked.wait()
            answer = await agent.connection.prompt(session_id=session, prompt=[text_block("and?")])
            assert answer.stop_reason == "end_turn"
            assert len(fake.asked) == 1
            assert (work / "ran.txt").read_text() == "once\n"
            assert await agent.end() == 0


async def run_client(program: Program, place: Path, session: str) -> Any:
    """Return what the client of the protocol's own package for Node saw."""
    command = (COMMAND, "acp", "--config", place / "owner.toml", "--state-dir", place / "state")
    process = await asyncio.create_subprocess_exec(
        "node", CLIENT, SDK.as_uri(), place / "work", session, *command, "--backend", "local",
        cwd=place, env=program.environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


async def test_another_client_opens_and_loads_a_session(program: Program, tmp_path: Path) -> None:
    """The protocol's package for Node asks, allows, lists, closes, and loads what it saw."""
    assert SDK.exists(), "make setup-clients installs it"
    (tmp_path / "work").mkdir()
    write_config(tmp_path)
    script = replies({"calls": [{"name": "exec", "arguments": CALL}]}, {"text": "All is done."})
    with heard_provider(program, script):
        first = await run_client(program, tmp_path, "")
        assert (first["stop"], len(first["asked"])) == ("end_turn", 1)
        assert first["listed"] == [first["session"]]
        second = await run_client(program, tmp_path, first["session"])
    said = [text_of(each["updates"]) for each in (first, second)]
    assert said == ["All is done.", "All is done."]
    assert [each["asked"] for each in (first, second)] == [first["asked"], []]
    assert (tmp_path / "work" / "ran.txt").read_text() == "once\n"


def text_of(updates: list[Any]) -> str:
    """Return what the agent has said."""
    return "".join(
        each["content"]["text"] for each in updates if each["sessionUpdate"] == "agent_message_chunk"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tier", "root"), "--tier 'root' is not one of"),
        (("--budget-usd", "0"), "is not above 0"),
        (("--workspace", "/no/such/place"), "is not a directory"),
    ],
)
def test_wrong_option_is_an_error(program: Program, options: tuple[str, ...], said: str) -> None:
    """It is said on stderr, and nothing is on the pipe."""
    done = program.run("acp", *options)
    assert (done.code, done.out, said in done.err) == (2, "", True)


async def test_two_editors_share_a_workspace(program: Program, tmp_path: Path) -> None:
    """A session that one has open is refused to the other by name, and can be loaded once it is free."""
    work = str(tmp_path / "work")
    with heard_provider(program, replies({"text": "yes"})):
        async with (
            started(program, tmp_path, "local", EditorFake()) as first,
            started(program, tmp_path, "local", EditorFake()) as second,
        ):
            sessions = [(await each.connection.new_session(cwd=work)).session_id for each in (first, second)]
            listed = await second.connection.list_sessions(cwd=work)
            assert {each.session_id for each in listed.sessions} == set(sessions)
            code, said = await refusal_of(second.connection.load_session(cwd=work, session_id=sessions[0]))
            assert (code, f"process {first.process.pid} writes it" in said) == (-32603, True)
            assert await first.end() == 0
            await second.connection.load_session(cwd=work, session_id=sessions[0])
            answer = await second.connection.prompt(session_id=sessions[0], prompt=[text_block("go")])
            assert answer.stop_reason == "end_turn"


NOISE = """
import os, sys
from sessiontree.cli.acp import _Pipes
pipes = _Pipes.take()
print("noise", flush=True)
os.system("echo noise; cat")
os.write(1, b"noise\\n")
assert sys.stdin.read() == ""
os.write(pipes.writes, os.read(pipes.reads, 100))
"""


def test_others_neither_print_nor_read_on_the_pipe() -> None:
    """What this process, its children and bare descriptors print goes to the errors; the input stays."""
    done = subprocess.run(
        [sys.executable, "-c", NOISE], input=b"asked", capture_output=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr.count(b"noise")) == (b"asked", 3)


async def test_request_on_a_pipe_is_answered(tmp_path: Path) -> None:
    """A shell is enough to try it: ``echo … | sessiontree acp``."""
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}})
    process = await asyncio.create_subprocess_exec(
        COMMAND, "acp", cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate(line.encode() + b"\n")
    assert json.loads(out)["result"]["protocolVersion"] == 1
    assert process.returncode == 0
