"""Lines: calls between two processes of a machine over a socket; whom they admit; what follows their loss."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from sessiontree import ProviderModel, Runtime, SessionTree
from sessiontree.backends.ray.backend import RayBackend
from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.backends.ray.client.socket_rpc import (
    LINES_SOCKET,
    LineListener,
    Methods,
    SocketRpc,
    SocketRpcClosed,
    connect_line,
)
from sessiontree.backends.ray.hosts.transport import LineTransport
from sessiontree.runtime.transport.frames import Hello, HostHealth
from sessiontree.runtime.transport.link import HostLink, Mailbox
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.behaviour.fact_fixtures import PATIENCE_S

CONNECTED = "03"
"""State of a connected socket in ``/proc/net/unix``."""
STRANGER = """
import socket, sys
line = socket.socket(socket.AF_UNIX)
line.settimeout(60)
line.connect(sys.argv[1])
try:
    print(line.recv(1))
except ConnectionResetError:
    print(b"")
"""
"""Connects, and prints what it is sent."""
IMPOSTOR = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(1)
print(flush=True)
sys.stdin.read()
"""
"""Listens, until its standard input closes."""


@pytest.fixture
async def listener(tmp_path: Path) -> AsyncIterator[LineListener]:
    """A listener at ``lines`` in the test's directory."""
    listener = LineListener(tmp_path / LINES_SOCKET)
    yield listener
    listener.close()


class Both:
    """Two ends of a line in one process."""

    def __init__(self, here: SocketRpc, there: SocketRpc) -> None:
        self.here = here
        """The end that connected."""
        self.there = there

    def close(self) -> None:
        """Close both."""
        self.here.close()
        self.there.close()


class Connect(Protocol):
    """Connects to a listener, with the methods of its end."""

    async def __call__(self, **methods: Any) -> Both:
        """Return both ends."""
        ...


@pytest.fixture
async def connect(listener: LineListener, tmp_path: Path) -> AsyncIterator[Connect]:
    """Connects to the listener; every line is closed with the test."""
    all_lines: list[Both] = []

    async def connect(**methods: Any) -> Both:
        made: asyncio.Future[SocketRpc] = asyncio.get_running_loop().create_future()

        def make() -> SocketRpc:
            line = SocketRpc(methods)
            made.set_result(line)
            return line

        listener.admit(os.getpid(), make)
        here = await connect_line(tmp_path / LINES_SOCKET, os.getpid(), {})
        assert here is not None
        all_lines.append(Both(here, await made))
        return all_lines[-1]

    yield connect
    for each in all_lines:
        each.close()
    await asyncio.sleep(0)


async def test_calls_and_their_answers_over_a_line(connect: Connect) -> None:
    """Answers belong to their calls, in whatever order they come; messages arrive in order."""
    heard: list[int] = []
    release = asyncio.Event()

    async def hear(number: int) -> None:
        heard.append(number)

    async def last(value: object) -> object:
        await release.wait()
        return value

    async def echo(value: object) -> object:
        return value

    both = await connect(hear=hear, last=last, echo=echo)
    async with asyncio.timeout(PATIENCE_S):
        waiting = asyncio.ensure_future(both.here.ask("last", "held back"))
        for number in range(50):
            both.here.tell("hear", number)
        for size in (0, 1, 65_535, 3_000_000):
            assert await both.here.ask("echo", b"x" * size) == b"x" * size
        assert heard == list(range(50))
        assert not waiting.done()
        release.set()
        assert await waiting == "held back"


async def test_call_that_only_waits_ends_with_its_caller(connect: Connect) -> None:
    """Cancelled at one end, it is cancelled at the other; a call that changes something is carried out."""
    ended: asyncio.Queue[str] = asyncio.Queue()
    release = asyncio.Event()

    async def held(name: str) -> None:
        try:
            await release.wait()
            ended.put_nowait(f"{name} done")
        except asyncio.CancelledError:
            ended.put_nowait(f"{name} cancelled")
            raise

    both = await connect(held=held, begun=asyncio.sleep)
    async with asyncio.timeout(PATIENCE_S):
        waiting = asyncio.ensure_future(both.here.wait_for("held", "waiting"))
        changing = asyncio.ensure_future(both.here.ask("held", "changing"))
        other = asyncio.ensure_future(both.here.wait_for("held", "other"))
        await both.here.ask("begun", 0)
        waiting.cancel()
        changing.cancel()
        assert await ended.get() == "waiting cancelled"
        release.set()
        assert {await ended.get(), await ended.get()} == {"changing done", "other done"}
        await other
        assert both.here.is_open


async def test_answer_that_cannot_be_sent_closes_the_line(connect: Connect) -> None:
    """The caller is informed, and gets the reason from the actor."""

    async def unsendable() -> object:
        return lambda: None

    both = await connect(unsendable=unsendable)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(SocketRpcClosed):
            await both.here.ask("unsendable")


@pytest.mark.parametrize("whose", ["here", "there"])
async def test_line_that_closes_fails_what_waits(connect: Connect, whose: str) -> None:
    """Either end may close it; whatever is called afterwards fails at once."""
    both = await connect(never=asyncio.Event().wait)
    waiting = asyncio.ensure_future(both.here.ask("never"))
    await asyncio.sleep(0)
    getattr(both, whose).close()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(SocketRpcClosed):
            await waiting
    assert not both.here.is_open
    with pytest.raises(SocketRpcClosed):
        both.here.tell("never")
    with pytest.raises(SocketRpcClosed):
        await both.here.ask("never")


@pytest.mark.parametrize("name", ["fail", "unknown"])
async def test_call_that_fails_closes_the_line(connect: Connect, name: str) -> None:
    """The caller repeats it as a call of the actor, which has the words for it."""

    async def fail() -> None:
        raise ValueError("no")

    both = await connect(fail=fail)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(SocketRpcClosed):
            await both.here.ask(name)


async def test_only_admitted_processes_get_a_line(listener: LineListener, tmp_path: Path) -> None:
    """Another process of the same user is sent nothing, and nothing of it is read; neither after its turn."""
    path, made = tmp_path / LINES_SOCKET, []

    def make() -> SocketRpc:
        made.append(SocketRpc({}))
        return made[-1]

    listener.admit(os.getppid(), make)
    words = [sys.executable, "-c", STRANGER, str(path)]
    async with asyncio.timeout(PATIENCE_S):
        stranger = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
        assert (await stranger.communicate())[0] == b"b''\n"
        listener.admit(os.getpid(), make)
        listener.refuse(os.getpid())
        here = await connect_line(path, os.getpid(), {})
        if here is not None:
            with pytest.raises(SocketRpcClosed):
                await here.ask("anything")
    assert made == []


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[Path]:
    """A socket at which another process of this user listens."""
    path = tmp_path / LINES_SOCKET
    words = [sys.executable, "-c", IMPOSTOR, str(path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield path
    process.communicate()


async def test_only_the_expected_process_is_connected_to(impostor: Path, tmp_path: Path) -> None:
    """A tool may replace the socket by its own; and without a socket no line is made."""
    assert await connect_line(impostor, os.getpid(), {}) is None
    assert await connect_line(tmp_path / "nowhere", os.getpid(), {}) is None


async def test_listener_without_a_place_admits_nobody(tmp_path: Path) -> None:
    """Its processes call actors then."""
    listener = LineListener(tmp_path / "missing" / LINES_SOCKET)
    listener.admit(os.getpid(), partial(SocketRpc, {}))
    assert await connect_line(tmp_path / "missing" / LINES_SOCKET, os.getpid(), {}) is None
    listener.close()


class Remote:
    """A method of an actor, called as Ray calls it."""

    def __init__(self, method: Any) -> None:
        self._method = method

    def remote(self, *given: Any) -> asyncio.Future[Any]:
        """Call it."""
        called: asyncio.Future[Any] = asyncio.ensure_future(self._method(*given))
        return called


class Actor:
    """An actor in this process; it answers each frame with itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mailbox = Mailbox(lambda frame: self._mailbox.put(frame))
        self.lines: list[SocketRpc] = []
        self.calls = 0
        """How often it was called as an actor."""
        self.heard = 0
        """How often frames came, over lines and as calls."""
        self.submitted = 0
        """How often they came as a call."""
        self.hello, self.open_line = Remote(self._request_hello), Remote(self._open_line)
        self.submit, self.poll = Remote(self._call), Remote(self._polled)
        self.health = Remote(self._well)

    async def _request_hello(self) -> Hello:
        return Hello(os.getpid(), "structural")

    async def _well(self) -> HostHealth:
        return HostHealth(os.getpid(), 0.0, None, 0)

    async def _open_line(self) -> None:
        methods: Methods = {"submit": self._heard, "poll": self._mailbox.poll}
        line = await connect_line(self._path, os.getpid(), methods)
        assert line is not None
        self.lines.append(line)

    async def _heard(self, frames: Sequence[tuple[int, Any]]) -> None:
        self.heard += 1
        self._mailbox.receive(frames)

    async def _call(self, data: bytes) -> None:
        self.calls += 1
        self.submitted += 1
        await self._heard(load_value(data))

    async def _polled(self, after: int, wait_s: float) -> bytes:
        self.calls += 1
        return dump_value(await self._mailbox.poll(after, wait_s))


class Unkilled(LineTransport):
    """A transport to an actor that shares this process."""

    def close(self) -> None:
        """Close the line alone."""
        self._lines.refuse(self.pid)
        if self._line is not None:
            self._line.close()


class Calm:
    """A start that nothing is known of."""

    def look(self) -> None:
        """Return that it goes on."""


@pytest.mark.parametrize("seed", range(5))
async def test_answers_come_once_and_in_order_however_often_lines_break(
    listener: LineListener, tmp_path: Path, seed: int
) -> None:
    """Frames and answers on their way when a line breaks go as calls of the actor, and over the next line."""
    chance, last = random.Random(seed), 200
    actor = Actor(tmp_path / LINES_SOCKET)
    transport: Any = Unkilled(listener, {}, actor, lambda _: None, tmp_path, Calm(), print)
    came: list[int] = []
    arrived = asyncio.Event()

    def take(_: HostLink, number: int) -> None:
        came.append(number)
        arrived.set()

    link = HostLink(
        "gateway1",
        transport,
        on_outcome=take,
        on_lost=lambda link, lost: None,
        on_free=lambda link: None,
        on_progress=lambda progress: None,
        resend_after_s=0.01,
    )
    async with asyncio.timeout(PATIENCE_S):
        for number in range(1, last + 1):
            link.send(number)
            await asyncio.sleep(0)
            what = chance.choice(["go on"] * 7 + ["open", "break here", "break there"])
            if what == "open":
                await actor.open_line.remote()
            elif what == "break here" and transport._line is not None:
                transport._line.close()
            elif what == "break there" and actor.lines:
                actor.lines[-1].close()
        while len(came) < last:
            arrived.clear()
            await arrived.wait()
    await link.close()
    for line in actor.lines:
        line.close()
    await asyncio.sleep(0)
    assert came == list(range(1, last + 1))
    assert 0 < actor.submitted < actor.heard


def connections(path: Path) -> int:
    """Return how many lines are open to a socket, which is shown by the name that it was bound to."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return sum(row[5] == CONNECTED and row[-1] == f"{path}.new" for row in rows if len(row) == 8)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_runtime")  # its runtime shares the run's Ray
@pytest.mark.parametrize("has_lines", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_reply_is_shown_piece_by_piece_with_and_without_lines(tmp_path: Path, has_lines: bool) -> None:
    """With a socket, the gateway, hosts and watchers have lines, besides the one for questions."""
    text = "".join(f"{number} " for number in range(300))
    (tmp_path / "workspace").mkdir()
    async with (
        FakeProvider([FakeReply(text, delta_chars=3)]) as fake,
        Runtime(tmp_path / "state", slots=2) as runtime,
        asyncio.timeout(PATIENCE_S),
    ):
        model = ProviderModel("openai:m", api_key="sk-sentinel-8Qx2", base_url=fake.url("openai"))
        async with SessionTree(tmp_path / "workspace", model=model, runtime=runtime) as tree:
            backend = runtime.backend
            assert isinstance(backend, RayBackend)
            assert backend._launch.scratch is not None
            path = backend._launch.scratch / LINES_SOCKET
            if not has_lines:
                path.unlink()
            for _ in range(2):
                pieces = [piece async for piece in tree.main.send("Count.")]
                assert len(pieces) > 10
                assert "".join(pieces) == text
            reader = tree.progress()
            assert await tree.main.send("Count again.") == text
            opened_lines = connections(path)
            assert opened_lines >= 4 if has_lines else opened_lines == 1
            reader.close()
