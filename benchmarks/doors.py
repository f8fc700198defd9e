"""What a door adds to a turn, and how many conversations one server holds open.

A client asks a server in another process, over loopback. Its trees are local; their model answers at once,
and is a coroutine function, as models that ask a provider are. The client of a turn is Python's own
`http.client`, so that what it takes itself is little.

- `send_ms`: a turn by `handle.send` in this process. `responses_ms`, `stream_ms`: a turn by
  `POST /v1/responses`, as JSON and as a stream, on a connection that stays; the conversation goes on.
  `added_ms`: how much longer that takes. `models_ms`: `GET /v1/models`, a request that asks no tree.
- `streams`: responses that are streamed at the same time, each of a conversation of its own: all were open
  before one ended. `opened_ms`, `ended_ms`: from the first request until all were open, and had ended.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.report import Figure, Options, read_options, show
from benchmarks.rounds import Rounds
from sessiontree import AsyncFunctionModel, ModelRequest, SessionTree

ROUNDS, QUICK_ROUNDS = 5, 1
TURNS, QUICK_TURNS = 200, 20
STREAMS, QUICK_STREAMS = 500, 50
TIMEOUT_S: Final = 300.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the figures."""
    options = read_options((__doc__ or "").partition("\n")[0], arguments)
    show(asyncio.run(measure(options)), options)


async def measure(options: Options) -> dict[str, Figure]:
    """Return the figures, medians of the rounds."""
    rounds = Rounds()
    turns, streams = (QUICK_TURNS, QUICK_STREAMS) if options.quick else (TURNS, STREAMS)
    async with _client() as client:
        asker = TurnAsker(client)
        for _ in range(QUICK_ROUNDS if options.quick else ROUNDS):
            rounds.begin()
            rounds.add("send_ms", *await _send_ms(turns))
            rounds.add("responses_ms", *await asyncio.to_thread(asker.measure, turns, stream=False))
            rounds.add("stream_ms", *await asyncio.to_thread(asker.measure, turns, stream=True))
            rounds.add("models_ms", *await asyncio.to_thread(asker.measure_models, turns))
        asker.close()
        opened_ms, ended_ms = await _open_streams(client, streams)
    names = ("send_ms", "responses_ms", "stream_ms", "models_ms")
    figures: dict[str, Figure] = {name: {"median": rounds.median(name)} for name in names}
    send_ms = rounds.median("send_ms")
    figures["added_ms"] = {name: rounds.median(f"{name}_ms") - send_ms for name in ("responses", "stream")}
    figures["streams"] = {"open": streams, "opened_ms": opened_ms, "ended_ms": ended_ms}
    return figures


@asynccontextmanager
async def _client() -> AsyncIterator[httpx.AsyncClient]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.doors_server", stdin=PIPE, stdout=PIPE
    )
    assert process.stdout is not None
    origin, token = [(await process.stdout.readline()).decode().strip() for _ in range(2)]
    headers, limits = {"Authorization": f"Bearer {token}"}, httpx.Limits(max_connections=None)
    try:
        async with httpx.AsyncClient(
            base_url=origin, headers=headers, limits=limits, timeout=TIMEOUT_S
        ) as client:
            yield client
    finally:
        await process.communicate(b"")  # its standard input closes


async def _send_ms(turns: int) -> list[float]:
    async def echo(request: ModelRequest) -> str:
        return request.messages[-1].text

    with tempfile.TemporaryDirectory(prefix="doors-") as folder:
        async with SessionTree(
            folder, model=AsyncFunctionModel(echo), state_dir=Path(folder, "state"), backend="local"
        ) as tree:
            await tree.main.send("warm")
            taken = []
            for number in range(turns):
                began = time.perf_counter()
                await tree.main.send(str(number))
                taken.append((time.perf_counter() - began) * 1e3)
    return taken


class TurnAsker:
    """Asks for one turn after the other on one connection.

    Args:
        client: Knows the server and the token.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._connection = http.client.HTTPConnection(client.base_url.netloc.decode(), timeout=TIMEOUT_S)
        self._headers = {
            "Authorization": client.headers["Authorization"],
            "Content-Type": "application/json",
        }

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def measure(self, turns: int, *, stream: bool) -> list[float]:
        """Return the milliseconds of turns of one conversation."""
        previous, _ = self._ask("warm", None, stream=stream)
        taken = []
        for number in range(turns):
            began = time.perf_counter()
            previous, text = self._ask(str(number), previous, stream=stream)
            taken.append((time.perf_counter() - began) * 1e3)
            assert text == str(number)
        return taken

    def measure_models(self, requests: int) -> list[float]:
        """Return the milliseconds of requests that ask no tree."""
        return [_timed(lambda: self._request("GET", "/v1/models", None)) for _ in range(requests)]

    def _ask(self, text: str, previous: str | None, *, stream: bool) -> tuple[str, str]:
        """Return the id and the text of a response."""
        asked = {"model": "default", "input": text, "previous_response_id": previous, "stream": stream}
        body = self._request("POST", "/v1/responses", json.dumps(asked))
        if not stream:
            return _read(json.loads(body))
        lines = [line for line in body.decode().splitlines() if line.startswith("data: {")]
        return _read(json.loads(lines[-1].removeprefix("data: "))["response"])

    def _request(self, method: str, path: str, body: str | None) -> bytes:
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return text


def _timed(call: Callable[[], object]) -> float:
    """Return the milliseconds that a call takes."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def _checked(answer: httpx.Response) -> httpx.Response:
    return answer.raise_for_status()


async def _events(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def _read(response: dict[str, Any]) -> tuple[str, str]:
    return response["id"], response["output"][-1]["content"][0]["text"]


async def _open_streams(client: httpx.AsyncClient, streams: int) -> tuple[float, float]:
    """Return the milliseconds until all streams were open, and until all had ended."""
    began, opened_ms = time.perf_counter(), [0.0] * streams

    async def follow(number: int) -> None:
        asked = {"model": "default", "input": f"wait {streams}", "stream": True}
        async with client.stream("POST", "/v1/responses", json=asked) as answer:
            _checked(answer)
            last = ""
            async for event in _events(answer):
                opened_ms[number] = opened_ms[number] or (time.perf_counter() - began) * 1e3
                last = event["type"]
        assert last == "response.completed", last

    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(follow(number))
    return max(opened_ms), (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    main()
