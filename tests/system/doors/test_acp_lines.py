"""Hostile lines: whatever an editor writes, the agent answers with an error of the protocol and goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from acp import RequestError

from sessiontree import ScriptedModel
from sessiontree.doors.acp import json_lines
from sessiontree.doors.acp.json_lines import MessageLines
from tests.system.doors.editor_fixtures import OpenEditor, open_editor

REFUSED = (
    (b"{", -32700),
    (b"\xff\xfe", -32700),
    (b"[" * 100_000, -32700),
    (b"[]", -32600),
    (b"3", -32600),
    (b'{"id": [1], "method": "initialize"}', -32600),
    (b'{"id": true, "method": "initialize"}', -32600),
    (b'{"id": 7, "method": {}}', -32600),
    (b'{"id": 7, "method": "no/such"}', -32601),
    (b'{"id": 7, "method": "_own"}', -32601),
    (b'{"id": 7, "method": "session/new"}', -32602),
    (b'{"id": 7, "method": "session/new", "params": []}', -32602),
    (b'{"id": 7, "method": "session/new", "params": {"cwd": 5, "mcpServers": []}}', -32602),
    (b'{"id": 7, "method": "session/prompt", "params": {"sessionId": "x", "prompt": [{}]}}', -32602),
)


async def answers_to(editor: OpenEditor, lines: list[bytes], count: int) -> list[Any]:
    """Return the errors that the agent sends for these lines."""
    heard: list[Any] = []
    is_done = asyncio.Event()

    def note(event: Any) -> None:
        if "error" in event.message:
            heard.append(event.message)
            if len(heard) == count:
                is_done.set()

    editor.connection._conn.add_observer(note)
    editor.raw.write(b"\n".join(lines) + b"\n")
    await editor.raw.drain()
    await is_done.wait()
    return heard


async def test_each_bad_line_is_answered(tmp_path: Path) -> None:
    """With the error that fits, under its own id if it has one; the next prompt is answered."""
    async with open_editor(tmp_path, ScriptedModel(["one"])) as editor:
        for line, code in REFUSED:
            (answer,) = await answers_to(editor, [line], 1)
            assert answer["error"]["code"] == code, line
            assert answer["id"] == (7 if b'"id": 7' in line else None)
        assert await editor.prompt(await editor.begin()) == "end_turn"


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
async def test_many_bad_lines_are_answered(tmp_path: Path, count: int) -> None:
    """Hundreds of mutations of a request, and answers to nothing: none ends the agent."""
    random = Random(4)
    good = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "session/load", "params": {"cwd": "/", "x": 1}})
    lines = []
    for _ in range(count):
        changed = bytearray(good.encode())
        for _ in range(random.randint(1, 4)):
            changed[random.randrange(len(changed))] = random.randrange(32, 256)
        lines.append(bytes(changed))
    lines += [b'{"id": 99999, "result": {}}', b'{"id": "x", "error": 5}', b"", b"  "]
    async with open_editor(tmp_path, ScriptedModel(["one"])) as editor:
        editor.raw.write(b"\n".join(lines) + b"\n")
        await editor.raw.drain()
        assert await editor.prompt(await editor.begin()) == "end_turn"


class Pipe:
    """What an agent reads and writes, without a process."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.written: list[Any] = []
        self.transport = MessageLines(self.reader, self._write)

    async def _write(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        assert b"\n" not in line[:-1]
        self.written.append(json.loads(line))


async def test_line_that_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused without being kept, and the line after it is read; a last line needs no end."""
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 200_000)  # a test writes no 32 MiB
    pipe = Pipe()
    pipe.reader.feed_data(b"x" * 900_000 + b'\n{"id": 1}\n{"method": "$/none"}\n{"id": 2}')
    pipe.reader.feed_eof()
    found = [await pipe.transport.receive() for _ in range(3)]
    assert found == [{"id": 1}, {"id": 2}, None]
    (refusal,) = pipe.written
    assert (refusal["error"]["code"], "200,000" in refusal["error"]["data"]["details"]) == (-32600, True)


async def test_what_is_written_is_one_line(tmp_path: Path) -> None:
    """Line ends and lone surrogates of a text are escaped; long data of an error is left out."""
    pipe = Pipe()
    await pipe.transport.send({"method": "x", "params": {"text": "a\nb\u2028\ud800"}})
    await pipe.transport.send({"id": 1, "error": {"code": 1, "message": "m", "data": {"x": "y" * 100_000}}})
    assert pipe.written[0]["params"]["text"] == "a\nb\u2028\ud800"
    assert pipe.written[1]["error"]["data"] == {"details": "the request is not valid"}


def _ask(number: int, asked: str) -> dict[str, Any]:
    """Return a message that asks for a permission; the ids of calls are the same in each tree."""
    call = {"toolCallId": "main:1.0", "_meta": {"sessiontree": {"request": asked}}}
    return {"method": "session/request_permission", "id": number, "params": {"toolCall": call}}


async def test_request_is_withdrawn_once() -> None:
    """The client gets the id of the request; a second withdrawal says nothing, nor one of another tree's."""
    pipe = Pipe()
    await pipe.transport.send(_ask(3, "of one tree"))
    await pipe.transport.send(_ask(4, "of another tree"))
    await pipe.transport.withdraw("of one tree")
    await pipe.transport.withdraw("of one tree")
    assert [each.get("params") for each in pipe.written[2:]] == [{"requestId": 3}]


async def test_form_is_withdrawn() -> None:
    """As a request for a permission is."""
    pipe = Pipe()
    params = {"message": "?", "_meta": {"sessiontree": {"request": "question"}}}
    await pipe.transport.send({"method": "elicitation/create", "id": 0, "params": params})
    await pipe.transport.withdraw("question")
    assert [each.get("params") for each in pipe.written[1:]] == [{"requestId": 0}]


async def test_requests_without_an_answer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer makes room, a withdrawal too, and whatever else a client writes does not."""
    monkeypatch.setattr(json_lines, "MAX_ASKED", 2)
    pipe = Pipe()
    for number in range(2):
        await pipe.transport.send(_ask(number, f"request {number}"))
    pipe.reader.feed_data(b'{"id": 7, "result": {}}\n{"id": 1, "method": "session/list"}\n')
    for _ in range(2):
        await pipe.transport.receive()
    with pytest.raises(RequestError, match="Invalid request") as refused:
        await pipe.transport.send(_ask(2, "request 2"))
    assert "2 requests of this agent" in str(refused.value.data)
    await pipe.transport.send({"method": "session/update", "params": {}})
    pipe.reader.feed_data(b'{"id": 0, "error": {"code": 1, "message": "no"}}\n')
    await pipe.transport.receive()
    await pipe.transport.send(_ask(3, "request 3"))
    await pipe.transport.withdraw("request 3")
    await pipe.transport.send(_ask(4, "request 4"))
