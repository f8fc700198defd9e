"""The raylet gets from our agent what Ray's own would answer, and from Ray's own what ours does not know."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from ray._private.runtime_env.context import RuntimeEnvContext
from ray.core.generated import runtime_env_agent_pb2

from sessiontree.backends.ray.engine.environment_agent import (
    EnvironmentServer,
    accept,
    answer_here,
    read_fields,
    read_options,
    write_field,
)

MESSAGES: Any = runtime_env_agent_pb2
CREATE, DELETE, LIST = (
    "/get_or_create_runtime_env",
    "/delete_runtime_env_if_possible",
    "/get_runtime_envs_info",
)
WITHIN_S = 60.0


class Rays:
    """Ray's agent: it answers with the path."""

    def answer(self, path: str, body: bytes) -> bytes:
        """Return the path."""
        return path.encode()


def ask_to_create(environment: dict[str, Any]) -> bytes:
    """Return the raylet's request for an environment."""
    request = MESSAGES.GetOrCreateRuntimeEnvRequest(
        serialized_runtime_env=json.dumps(environment), job_id=b"01000000", source_process="raylet"
    )
    request.runtime_env_config.setup_timeout_seconds = 600
    return bytes(request.SerializeToString())


@pytest.mark.parametrize("words", ["python -I launcher.py", "long " * 5000, "päth", ""])
def test_answer_is_the_one_of_rays_agent(words: str) -> None:
    """Its context names the interpreter's words and nothing else."""
    data = answer_here(CREATE, ask_to_create({"py_executable": words}))
    reply = MESSAGES.GetOrCreateRuntimeEnvReply()
    reply.ParseFromString(data)
    usual = RuntimeEnvContext(env_vars={}, py_executable=words)
    assert reply.status == MESSAGES.AGENT_RPC_STATUS_OK
    assert json.loads(reply.serialized_runtime_env_context) == json.loads(usual.serialize())


def test_nothing_is_deleted_where_nothing_was_made() -> None:
    """The answer to the end of such an environment is empty, which means that all is well."""
    request = MESSAGES.DeleteRuntimeEnvIfPossibleRequest(serialized_runtime_env='{"py_executable": "p"}')
    assert answer_here(DELETE, request.SerializeToString()) == b""


@pytest.mark.parametrize("environment", [{"env_vars": {"A": "1"}}, {"py_executable": "p", "pip": ["x"]}])
def test_other_environments_are_not_answered_here(environment: dict[str, Any]) -> None:
    """Nor are questions for a list."""
    assert answer_here(CREATE, ask_to_create(environment)) is None
    assert answer_here(LIST, b"") is None


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\x8a", b"\x09\x01"])
def test_damaged_message_is_an_error(data: bytes) -> None:
    """It is not taken for an environment without members."""
    with pytest.raises(ValueError):
        read_fields(data)


def test_field_of_any_size_is_read_back() -> None:
    """Also one whose size takes several bytes."""
    for size in (0, 1, 127, 128, 20_000):
        assert read_fields(write_field(3, b"x" * size)) == {3: b"x" * size}


def send(server: EnvironmentServer, request: bytes) -> tuple[int, bytes]:
    """Return the status and the body of the answer to a request."""
    ours, theirs = socket.socketpair()
    serving = threading.Thread(target=server.serve, args=(theirs,))
    serving.start()
    with ours:
        ours.settimeout(WITHIN_S)
        ours.sendall(request)
        ours.shutdown(socket.SHUT_WR)
        data = b"".join(iter(lambda: ours.recv(65536), b""))
    serving.join(WITHIN_S)
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def write_request(path: str, body: bytes, *headers: str) -> bytes:
    """Return a request as the raylet writes it."""
    lines = (f"POST {path} HTTP/1.1", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


PLAIN = ask_to_create({"py_executable": "p"})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (("Authorization: Bearer word",), 200),
        (("X-Ray-Authorization: Bearer word",), 200),
        (("Authorization: Bearer other",), 403),
        (("Authorization: word",), 403),
        ((), 403),
    ],
)
def test_only_who_has_the_token_is_answered(headers: tuple[str, ...], status: int) -> None:
    """Another user of the machine reaches the port, too."""
    server = EnvironmentServer("word", Rays())  # type: ignore[arg-type]
    assert send(server, write_request(CREATE, PLAIN, *headers))[0] == status


def test_each_request_gets_an_answer() -> None:
    """One that is not known, cut off or damaged fails, and the agent goes on."""
    server = EnvironmentServer(None, Rays())  # type: ignore[arg-type]
    assert send(server, write_request("/other", b""))[0] == 404
    assert send(server, b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab")[0] == 400
    status, body = send(server, write_request(CREATE, b"\x0a"))
    reply = MESSAGES.GetOrCreateRuntimeEnvReply()
    reply.ParseFromString(body)
    assert (status, reply.status) == (200, MESSAGES.AGENT_RPC_STATUS_FAILED)
    assert "cut off" in reply.error_message
    assert send(server, write_request(LIST, b"")) == (200, LIST.encode())
    assert send(server, write_request(CREATE, PLAIN))[0] == 200


def test_agent_ends_with_its_raylet() -> None:
    """It accepts connections until then."""
    raylet = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    descriptor = os.pidfd_open(raylet.pid)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections = accept(listener, descriptor)
        with socket.create_connection(listener.getsockname()):
            next(connections).close()
        raylet.communicate(b"\n", WITHIN_S)
        assert next(connections, None) is None
    os.close(descriptor)


def test_options_are_those_of_rays_agent() -> None:
    """Each is one word."""
    words = ["--node-id=ab", "--session-dir=/a=b", "--logging-filename="]
    assert read_options(words) == {"node_id": "ab", "session_dir": "/a=b", "logging_filename": ""}


OTHER = """
import asyncio, os
import ray
from sessiontree.backends.ray.engine.engine import RayConnection

async def main():
    engine = RayConnection(num_cpus=1)
    await engine.start()
    def read():
        return os.environ.get("NAMED")
    task = ray.remote(num_cpus=0, runtime_env={"env_vars": {"NAMED": "here"}})(read)
    print(ray.get(task.remote()))
    await engine.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_ray_itself_makes_other_environments(tmp_path: Path) -> None:
    """A program's own tasks on a private Ray may have what Ray offers."""
    done = subprocess.run(
        [sys.executable, "-c", OTHER],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=WITHIN_S,
    )
    assert done.stdout.strip() == "here", done.stderr
