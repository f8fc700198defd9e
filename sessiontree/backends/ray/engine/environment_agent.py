"""Answers the raylet of a private Ray about runtime environments, in the place of Ray's own agent.

Every process of an actor waits for that answer, and the raylet is not ready before the agent is. Ray's own
loads a web server and all of Ray: half a second. The environments of this runtime name an interpreter and
nothing else, so their answer is the request again in other words. For any other environment this program
loads Ray's agent, and passes the request on.

Only the standard library is loaded at the start. Source: Ray 2.60, ``_private/runtime_env/agent/main.py``.
"""

from __future__ import annotations

import contextlib
import hmac
import importlib
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

PORT_FILE: Final = "runtime_env_agent_port_"
"""How the name of the file begins in which the raylet looks for the port; the node's id follows."""
PLAIN: Final = frozenset({"py_executable"})
"""The members of an environment that is answered here."""
MAX_BYTES: Final = 16 * 2**20
"""Size of the largest request."""
READ_S: Final = 30.0
"""How long a request may take to arrive."""
_CREATE: Final = "/get_or_create_runtime_env"
_DELETE: Final = "/delete_runtime_env_if_possible"
_LIST: Final = "/get_runtime_envs_info"
_CALLS: Final = {
    _CREATE: "GetOrCreateRuntimeEnv",
    _DELETE: "DeleteRuntimeEnvIfPossible",
    _LIST: "GetRuntimeEnvsInfo",
}
"""The paths of requests, with the names of the methods of Ray's agent."""
_FAILED: Final = b"\x08\x01"
"""The field of an answer that says that the request failed."""
_GUARD: Final = Path(__file__).parents[3] / "interpreter" / "import_guard.py"


class RefusedRequest(Exception):
    """A request that gets no answer but this status."""


def read_options(words: Sequence[str]) -> dict[str, str]:
    """Return the options of Ray's agent by name, each given as ``--name=value``."""
    pairs = (word[2:].partition("=") for word in words if word.startswith("--"))
    return {name.replace("-", "_"): value for name, _, value in pairs}


def read_fields(data: bytes) -> dict[int, bytes]:
    """Return the strings and messages of a protobuf message by their numbers.

    Raises:
        ValueError: the message is cut off, or has another kind of field.
    """
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        key, at = _read_number(data, at)
        size, at = _read_number(data, at)
        if key & 7 == 2:
            if at + size > len(data):
                raise ValueError("the message is cut off")
            found[key >> 3] = data[at : at + size]
            at += size
        elif key & 7:
            raise ValueError(f"a field of kind {key & 7} is unknown")
    return found


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data):
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return number, at
    raise ValueError("the message is cut off")


def write_field(number: int, text: bytes) -> bytes:
    """Return a string of a protobuf message."""
    size, head = len(text), bytearray((number << 3 | 2,))
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes((*head, size)) + text


def answer_here(path: str, body: bytes) -> bytes | None:
    """Return the answer to a request about an environment that names an interpreter alone; None = another."""
    if path == _LIST:
        return None
    asked = json.loads(read_fields(body).get(1, b"{}"))
    if not asked.keys() <= PLAIN:
        return None
    if path == _DELETE:
        return b""  # nothing was made
    context: dict[str, Any] = {
        "command_prefix": [],
        "env_vars": {},
        "py_executable": asked.get("py_executable") or sys.executable,
        "override_worker_entrypoint": None,
        "java_jars": [],
    }
    return write_field(3, json.dumps(context).encode())


class RayAgent:
    """Ray's own agent, in this process: it is loaded with the first request that only it can answer.

    Args:
        options: The options of its program.
        port: Where this program listens.
    """

    def __init__(self, options: Mapping[str, str], port: int) -> None:
        self._options = options
        self._port = port
        self._lock = threading.Lock()
        self._agent: Any = None
        self._loop: Any = None

    def answer(self, path: str, body: bytes) -> bytes:
        """Return its answer to a request."""
        import asyncio

        with self._lock:
            if self._agent is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="rays-agent", daemon=True).start()
                self._agent = asyncio.run_coroutine_threadsafe(self._load(), self._loop).result()
        from ray.core.generated import runtime_env_agent_pb2 as messages

        request: Any = getattr(messages, f"{_CALLS[path]}Request")()
        request.ParseFromString(body)
        asking = getattr(self._agent, _CALLS[path])(request)
        reply: bytes = asyncio.run_coroutine_threadsafe(asking, self._loop).result().SerializeToString()
        return reply

    async def _load(self) -> Any:
        _close_imports(self._options.get("user_site", ""))
        import ray
        from ray._private import ray_constants
        from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled: its stub leaves it out

        folder = Path(ray.__file__).parent / "_private" / "runtime_env" / "agent"
        sys.path[:0] = [str(folder), str(folder / "thirdparty_files")]
        agent = importlib.import_module("runtime_env_agent")

        options = self._options
        return agent.RuntimeEnvAgent(
            runtime_env_dir=options["runtime_env_dir"],
            logging_params={
                "logging_level": ray_constants.LOGGER_LEVEL.upper(),
                "logging_format": ray_constants.LOGGER_FORMAT,
                "log_dir": options["log_dir"],
                "filename": "runtime_env_agent.log",
                "max_bytes": int(options["logging_rotate_bytes"]),
                "backup_count": int(options["logging_rotate_backup_count"]),
            },
            gcs_client=GcsClient(address=options["gcs_address"], cluster_id=options["cluster_id_hex"]),
            temp_dir=options["temp_dir"],
            address=options["node_ip_address"],
            runtime_env_agent_port=self._port,
        )


def _close_imports(user_site: str) -> None:
    """Find the environment, as every process of the runtime does."""
    name = "sessiontree.interpreter.import_guard"
    loader = SourceFileLoader(name, str(_GUARD))
    guard: Any = ModuleType(name)
    guard.__file__ = str(_GUARD)
    sys.modules[name] = guard
    loader.exec_module(guard)
    guard.clean_variables()
    guard.close_imports(user_site)


class EnvironmentServer:
    """Serves requests over HTTP, each in a thread of its own.

    Args:
        token: The word that a request must have; None = this Ray has none.
        rays: Answers what is not answered here.
    """

    def __init__(self, token: str | None, rays: RayAgent) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._rays = rays

    def serve(self, connection: socket.socket) -> None:
        """Answer one request."""
        with contextlib.suppress(OSError), connection:
            connection.settimeout(READ_S)
            try:
                status, body = "200 OK", self._answer(*_receive(connection))
            except RefusedRequest as refused:
                status, body = str(refused), b""
            except Exception as error:  # noqa: BLE001 - the raylet gets the reason
                reason = f"{type(error).__name__}: {error}"
                status, body = "200 OK", _FAILED + write_field(2, reason.encode())
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode() + body)

    def _answer(self, path: str, headers: Mapping[str, bytes], body: bytes) -> bytes:
        given = headers.get("authorization") or headers.get("x-ray-authorization") or b""
        if self._expected is not None and not hmac.compare_digest(given, self._expected):
            raise RefusedRequest("403 Forbidden")
        if path not in _CALLS:
            raise RefusedRequest("404 Not Found")
        plain = answer_here(path, body)
        return self._rays.answer(path, body) if plain is None else plain


def _receive(connection: socket.socket) -> tuple[str, dict[str, bytes], bytes]:
    """Return a request's path, headers and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _read_more(connection, data)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    headers = {name.decode("latin-1").strip().lower(): value.strip() for name, _, value in pairs}
    size = int(headers.get("content-length", b"0"))
    while len(body) < size:
        body += _read_more(connection, body)
    return first.split()[1].decode("latin-1"), headers, body[:size]


def _read_more(connection: socket.socket, data: bytes) -> bytes:
    more = connection.recv(65536)
    if not more or len(data) + len(more) > MAX_BYTES:
        raise RefusedRequest("400 Bad Request")
    return more


def accept(listener: socket.socket, raylet: int) -> Iterator[socket.socket]:
    """Yield connections until the raylet has ended."""
    poll = select.poll()
    for descriptor in (listener.fileno(), raylet):
        poll.register(descriptor, select.POLLIN)
    while not any(descriptor == raylet for descriptor, _ in poll.poll()):
        yield listener.accept()[0]


def run(words: Sequence[str]) -> None:
    """Listen, tell the raylet where, and serve until the raylet has ended."""
    raylet = os.pidfd_open(os.getppid())
    options = read_options(words)
    wanted = int(options.get("runtime_env_agent_port") or 0)
    listener = socket.create_server((options["node_ip_address"], wanted))
    port = listener.getsockname()[1]
    has_token = os.environ.get("RAY_AUTH_MODE", "token") == "token"
    server = EnvironmentServer(os.environ["RAY_AUTH_TOKEN"] if has_token else None, RayAgent(options, port))
    place = Path(options["session_dir"]) / f"{PORT_FILE}{options['node_id']}"
    unfinished = place.with_name(f"{place.name}.new")
    unfinished.write_text(str(port), "ascii")
    unfinished.rename(place)  # whole, for the raylet looks for it all the time
    for connection in accept(listener, raylet):
        threading.Thread(target=server.serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    run(sys.argv[1:])
