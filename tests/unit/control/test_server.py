"""The control socket's server: nothing a peer says, or leaves unsaid, disturbs the runtime or other peers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sessiontree import SessionTree
from sessiontree.backends.local.backend import LocalBackend
from sessiontree.contracts.errors import JournalError, SessionTreeError
from sessiontree.control.client import ControlClient
from sessiontree.control.protocol import MAX_LINE_BYTES, PROTOCOL, connect_control_socket, encode_line
from sessiontree.control.server import MAX_AT_ONCE, MAX_BUFFER_BYTES, ControlServer
from tests.unit.control.tree_program import errands

MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """A peer that says anything."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def say(self, words: bytes) -> None:
        """Say bytes."""
        self.writer.write(words)

    async def hear(self) -> dict[str, Any]:
        """Return what is said next; empty where nothing ever will be."""
        async with asyncio.timeout(MAX_S):
            try:
                line = await self.reader.readline()
            except ConnectionError:
                return {}
        heard: dict[str, Any] = json.loads(line) if line else {}
        return heard

    async def ask(self, number: int, ask: str, **given: Any) -> dict[str, Any]:
        """Ask, and return the first line of the answer."""
        self.say(encode_line({"id": number, "ask": ask, "given": given}))
        return await self.hear()


@contextlib.asynccontextmanager
async def line_to(state_dir: Path) -> AsyncIterator[Line]:
    """Connect as a peer, and hear the greeting."""
    found = await connect_control_socket(state_dir)
    assert found is not None
    reader, writer = await asyncio.open_unix_connection(sock=found, limit=2 * MAX_LINE_BYTES)
    line = Line(reader, writer)
    try:
        assert (await line.hear()).get("protocol") == PROTOCOL
        yield line
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.fixture
async def impatient(tree: SessionTree, tmp_path: Path) -> AsyncIterator[Path]:
    """A second control socket of the same supervisor, with little patience and room for two."""
    place = tmp_path / "impatient"
    place.mkdir()
    backend = tree._backend
    assert isinstance(backend, LocalBackend)
    server = ControlServer(backend.local.answers, place, most_peers=2, patience_s=0.1, grace_s=0.1)
    server.start()
    yield place
    await server.close()


GARBAGE = {
    "no JSON": b"GET / HTTP/1.1\r\n",
    "no text": b"\xff\xfe\x00",
    "no object": b"[1,2]",
    "no question": b"{}",
    "no id": b'{"ask":"open_trees"}',
    "an id that is not valid": b'{"id":-1,"ask":"open_trees"}',
    "no number": b'{"id":1,"ask":"read","given":{"wait_s":NaN}}',
    "too deep": b"[" * 500_000,
    "an empty line": b"",
    "a pickle": b"cos\nsystem",
}


@pytest.mark.slow
@pytest.mark.parametrize("words", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_is_told_and_hung_up_on(tree: SessionTree, words: bytes) -> None:
    """A line that can't be understood is the last one heard; nobody else notices."""
    async with line_to(tree.state_dir) as line, await ControlClient.connect(tree.state_dir) as other:
        line.say(words + b"\n")
        said = await line.hear()
        assert (said["id"], said["error"]["type"]) == (None, "ConfigError")
        assert await line.hear() == {}
        assert await other.supervisor.open_trees() == [tree.tree_id]
    assert await tree.main.send("x") == "heard: x"


async def test_line_without_end_is_given_up(tree: SessionTree) -> None:
    """More than a line may have is not held, and not waited for."""
    async with line_to(tree.state_dir) as line:
        line.say(b'{"id":1,"ask":"' + b"x" * (MAX_LINE_BYTES + 1))
        assert "it is too long" in (await line.hear())["error"]["fields"][0]
        assert await line.hear() == {}
    assert await tree.main.send("x") == "heard: x"


async def test_line_of_full_length_is_heard(tree: SessionTree) -> None:
    """The bound itself still fits."""
    async with line_to(tree.state_dir) as line:
        words = encode_line({"id": 1, "ask": "open_trees", "given": {}})[:-1]
        line.say(words + b" " * (MAX_LINE_BYTES - len(words)) + b"\n")
        assert await line.hear() == {"id": 1, "items": [tree.tree_id]}


async def test_half_open_line_is_not_waited_for(impatient: Path) -> None:
    """A peer that begins a line and does not end it is hung up on; one that says nothing is not."""
    async with line_to(impatient) as quiet, line_to(impatient) as half:
        half.say(b'{"id":1,')
        assert await half.hear() == {}
        assert "items" in await quiet.ask(1, "open_trees")


async def test_one_more_than_there_is_room_for_is_told_so(impatient: Path) -> None:
    """Connections are bounded, and free again when somebody leaves."""
    async with await ControlClient.connect(impatient) as first:
        async with await ControlClient.connect(impatient):
            with pytest.raises(SessionTreeError, match="2 other clients are already connected"):
                await ControlClient.connect(impatient)
            assert await first.supervisor.open_trees()
        third: ControlClient | None = None
        async with asyncio.timeout(MAX_S):
            while third is None:
                with contextlib.suppress(SessionTreeError):
                    third = await ControlClient.find(impatient)
        assert await third.supervisor.open_trees()
        await third.close()


async def test_too_many_questions_at_once_are_refused_one_by_one(tree: SessionTree) -> None:
    """Beyond a bound a question is answered with an error; the others are not lost, and room comes back."""
    async with line_to(tree.state_dir) as line:
        for number in range(MAX_AT_ONCE):
            line.say(
                encode_line(
                    {"id": number, "ask": "result", "given": {"tree_id": tree.tree_id, "session": "main"}}
                )
            )
        said = await line.ask(1000, "open_trees")
        assert (said["id"], "already waiting for answers" in said["error"]["fields"][0]) == (1000, True)
        line.say(encode_line({"withdraw": 3}))
        line.say(encode_line({"withdraw": 777}))
        while "error" in (said := await line.ask(1001, "open_trees")):
            pass
        assert said == {"id": 1001, "items": [tree.tree_id]}


async def test_id_that_is_under_way_is_no_new_question(tree: SessionTree) -> None:
    """Two questions of one id can't be distinguished."""
    async with line_to(tree.state_dir) as line:
        line.say(
            encode_line({"id": 1, "ask": "result", "given": {"tree_id": tree.tree_id, "session": "main"}})
        )
        said = await line.ask(1, "open_trees")
        assert "request 1 is not answered yet" in said["error"]["fields"][0]
        assert await line.hear() == {}


def hold_little(line: socket.socket) -> None:
    """Let a connection hold as little as the system allows."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)


@pytest.mark.slow
async def test_peer_that_does_not_listen_is_hung_up_on(tree: SessionTree, impatient: Path) -> None:
    """What is written ahead for it is bounded; others are answered meanwhile, and the tree goes on."""
    for _ in range(4):
        await tree.main.send("long " + "x" * MAX_BUFFER_BYTES)
    found = await connect_control_socket(impatient)
    assert found is not None
    with found:
        hold_little(found)
        for number in range(30):
            given = {"tree_id": tree.tree_id, "session": "main"}
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                found.sendall(encode_line({"id": number, "ask": "record_of", "given": given}))
        async with await ControlClient.connect(impatient) as other:
            assert await other.supervisor.open_trees() == [tree.tree_id]
            assert await tree.main.send("x") == "heard: x"
            async with asyncio.timeout(MAX_S):
                while not _is_hung_up(found):
                    await other.supervisor.open_trees()


def _is_hung_up(line: socket.socket) -> bool:
    try:
        line.send(b"\n")
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


async def test_what_the_owner_itself_gets_wrong_is_an_answer(tree: SessionTree) -> None:
    """A failure nobody foresaw reaches whoever asked, typed, and ends nothing."""
    async with line_to(tree.state_dir) as line:
        long: dict[str, object] = {"tree_id": "t" * 5000 + "\x00"}
        session, reading = {**long, "session": "main"}, {**long, "after_seq": 0, "max_n": 1, "wait_s": 0}
        asked = {"report": session, "pending": long, "receipt": long, "record_of": session, "last_seq": long}
        for number, (ask, given) in enumerate({**asked, "read": reading}.items()):
            said = await line.ask(number, ask, **given)
            assert said["id"] == number
            assert said["error"]["type"] in {"TreeNotFound", "SessionTreeError"}
        assert "items" in await line.ask(100, "open_trees")


async def test_close_gives_what_is_under_way_its_answer(tmp_path: Path, state_dir: Path) -> None:
    """A receipt is on its way when the program that owns the tree ends at once: it still arrives."""
    tree = await errands(tmp_path, state_dir).start()
    async with await ControlClient.connect(state_dir) as client:
        await client.supervisor.send(tree.tree_id, "main", "x", "follow_up", "m1")
        ended = asyncio.create_task(tree._backend.supervisor.result(tree.tree_id, "main"))
        stopping = asyncio.create_task(client.supervisor.stop(tree.tree_id, "main", "enough"))
        await ended
        await tree.close()
        assert [line.session_id for line in await stopping] == ["main"]


async def test_close_does_not_wait_for_who_does_not_listen(tmp_path: Path, state_dir: Path) -> None:
    """A deaf peer, a silent one and one within a line are left behind; no file is."""
    tree = await errands(tmp_path, state_dir).start()
    await tree.main.send("long " + "x" * (2 * MAX_BUFFER_BYTES))
    async with line_to(state_dir), line_to(state_dir) as half:
        half.say(b"{")
        found = await connect_control_socket(state_dir)
        assert found is not None
        with found:
            hold_little(found)
            given = {"tree_id": tree.tree_id, "session": "main"}
            found.sendall(encode_line({"id": 1, "ask": "record_of", "given": given}))
            async with asyncio.timeout(MAX_S):
                await tree.close()
    assert not (state_dir / "control").exists()


async def test_door_closed_at_once_lets_nobody_in(tmp_path: Path, state_dir: Path) -> None:
    """Opening and closing without anybody knocking leaves nothing; a half-way connection ends typed."""
    tree = await errands(tmp_path, state_dir).start()
    reaching = asyncio.create_task(ControlClient.find(state_dir))
    await asyncio.sleep(0)
    await tree.close()
    try:
        client = await reaching
    except JournalError:
        return
    if client is not None:
        with pytest.raises(SessionTreeError):
            while True:
                await client.supervisor.report(tree.tree_id, "main")
        await client.close()
