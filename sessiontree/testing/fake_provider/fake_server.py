"""The fake provider's server: HTTP on loopback, counts, cache and checks of signatures.

It supports HTTP/1.1 as far as providers' libraries need it. Everything runs on the loop that starts it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias
from weakref import WeakSet

from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.testing.fake_provider.fake_reply import FakeReply, FakeUsage, SignedReply
from sessiontree.testing.fake_provider.wire_forms import (
    CHAT,
    GEMINI,
    MESSAGES,
    MISTRAL,
    RESPONSES,
    WireEvent,
    WireForm,
)

MAX_BODY_BYTES: Final = 64 * 2**20
CHARS_PER_TOKEN: Final = 4
_SIGNATURES: Final = frozenset({"signature", "encrypted_content", "thoughtSignature", "thought_signature"})
_UNSIGNED: Final = base64.b64encode(b"skip_thought_signature_validator").decode()
"""What Google accepts in the place of a signature for calls that it did not make."""
_CALLS: Final = frozenset({"id", "call_id", "tool_call_id", "tool_use_id"})


@dataclass(frozen=True, slots=True)
class FakeRequest:
    """A question as it came."""

    form: str
    """``chat``, ``mistral``, ``responses``, ``messages`` or ``gemini``."""
    path: str
    headers: Mapping[str, str]
    """By names in lower case."""
    body: Mapping[str, Any]
    model: str
    is_streamed: bool


Script: TypeAlias = "Sequence[FakeReply] | Callable[[FakeRequest], FakeReply]"
"""Replies in order, the last one again and again; or a function of the question."""


@dataclass(slots=True)
class FakeCounts:
    """What happened so far."""

    connections: int = 0
    """Opened, all together."""
    open_connections: int = 0
    requests: int = 0
    running_requests: int = 0
    most_running: int = 0
    """Most requests at a time."""
    broken_off: int = 0
    """Replies whose reader left before their end."""
    input_tokens: int = 0
    """Of all questions that had a whole reply."""
    output_tokens: int = 0
    """Of all whole replies."""


class ReaderGone(Exception):
    """The client has closed the connection."""


_FORMS: Final[tuple[tuple[re.Pattern[str], str, WireForm], ...]] = (
    (re.compile(r"/mistral/v1/chat/completions$"), "mistral", MISTRAL),
    (re.compile(r"/chat/completions$"), "chat", CHAT),
    (re.compile(r"/responses$"), "responses", RESPONSES),
    (re.compile(r"/messages$"), "messages", MESSAGES),
    (
        re.compile(r"/models/(?P<model>[^/:]+):(?P<what>streamGenerateContent|generateContent)$"),
        "gemini",
        GEMINI,
    ),
)


async def cut_connections(writers: Iterable[asyncio.StreamWriter]) -> None:
    """Close connections at once, and wait until they are closed: nothing closes them after their loop.

    Args:
        writers: Their server's sides.
    """
    here = list(writers)
    for writer in here:
        # Not closed gently: a client that reads nothing would keep the connection open, and the test with it.
        writer.transport.abort()
    for writer in here:
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@dataclass(slots=True)
class FakeProvider:
    """A provider on loopback; an async context manager.

    Args:
        script: What it replies.
        port: 0 = any that is free.
    """

    script: Script = (FakeReply("Hello."),)
    port: int = 0
    counts: FakeCounts = field(default_factory=FakeCounts)
    requests: list[FakeRequest] = field(default_factory=list)
    """All questions, oldest first."""
    _server: asyncio.Server | None = None
    _replied: int = 0
    _known: set[tuple[str, ...]] = field(default_factory=set)
    """Beginnings of questions that are in its cache."""
    _issued: dict[str, str] = field(default_factory=dict)
    """Signatures it gave, by the id of each call that came with them."""
    _signed: set[str] = field(default_factory=set)
    _writers: WeakSet[asyncio.StreamWriter] = field(default_factory=WeakSet)
    """Of connections that the loop still has, also where only bytes that nobody has read keep it."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> FakeProvider:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=MAX_BODY_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection and stop listening."""
        assert self._server is not None  # noqa: S101 - it was entered
        self._server.close()
        await cut_connections(self._writers)

    def url(self, provider: str) -> str:
        """Return the ``base_url`` for a provider of this name, such as ``openai-responses``."""
        ends = {"mistral": "/mistral", "anthropic": "", "google": ""}
        return f"http://127.0.0.1:{self.port}{ends.get(provider, '/v1')}"

    async def until(self, is_so: Callable[[FakeCounts], bool]) -> None:
        """Wait until ``is_so`` is true of the counts."""
        while not is_so(self.counts):
            # Nothing is awaited between the look and this line, so no change can be missed.
            self._changed.clear()
            await self._changed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts.connections += 1
        self.counts.open_connections += 1
        self._writers.add(writer)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, ReaderGone):
            pass  # it is the reader's to leave
        finally:
            self.counts.open_connections -= 1
            self._changed.set()
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = target.partition("?")[0]
        if method == "GET":
            counted = {name: getattr(self.counts, name) for name in FakeCounts.__slots__}
            await _write(writer, 200, {}, json.dumps(counted).encode(), None)
            return True
        matches = ((pattern.search(path), name, form) for pattern, name, form in _FORMS)
        found, name, form = next((each for each in matches if each[0]), (None, "", None))
        if found is None or form is None:
            await _write(writer, 404, {}, json.dumps({"error": f"nothing is at {path}"}).encode(), None)
            return True
        given, named = json.loads(body), found.groupdict()
        is_streamed = bool(given.get("stream")) or named.get("what", "").startswith("stream")
        model = named.get("model") or str(given.get("model", ""))
        request = FakeRequest(name, path, headers, given, model, is_streamed)
        self.requests.append(request)
        counts = self.counts
        counts.requests += 1
        counts.running_requests += 1
        counts.most_running = max(counts.most_running, counts.running_requests)
        self._changed.set()
        try:
            return await self._answer(request, form, reader, writer)
        except (ConnectionError, ReaderGone):
            counts.broken_off += 1
            raise
        finally:
            counts.running_requests -= 1
            self._changed.set()

    async def _answer(
        self, request: FakeRequest, form: WireForm, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        reply = self._next(request)
        await _pause(reader, reply.first_s)
        status, complaint = reply.status, reply.error
        if status == 200 and (wrong := self._wrong_signature(request.body)):
            status, complaint = 400, wrong
        if status != 200:
            after = {} if reply.retry_after_s is None else {"retry-after": f"{reply.retry_after_s:g}"}
            await _write(writer, status, after, json.dumps(form.error(status, complaint)).encode(), None)
            return True
        said = self._said(request, form, reply)
        if not request.is_streamed:
            await _write(writer, 200, {}, json.dumps(form.whole(said)).encode(), reply.write_bytes)
        else:
            writer.write(
                _format_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
            )
            events = (("", each) for each in reply.events) if reply.events else form.events(said)
            if not await _stream(events, reply, reader, writer):
                writer.transport.abort()
                return False
        # Only after the last byte: a provider charges nothing for a reply that it did not finish.
        self.counts.input_tokens += said.usage.input_tokens
        self.counts.output_tokens += said.usage.output_tokens
        if said.signature:  # of a reply that broke off nothing is signed
            self._signed.add(said.signature)
            self._issued.update({said.call_id(index): said.signature for index in range(len(reply.calls))})
        return True

    def _next(self, request: FakeRequest) -> FakeReply:
        if callable(self.script):
            return self.script(request)
        index = min(self._replied, len(self.script) - 1)
        self._replied += 1
        return self.script[index]

    def _said(self, request: FakeRequest, form: WireForm, reply: FakeReply) -> SignedReply:
        is_signed = bool(reply.thinking) and form.signs
        signature = secrets.token_hex(12) if is_signed else ""  # also valid as base64
        words = reply.text + reply.thinking + reply.refusal + "".join(call.arguments for call in reply.calls)
        read, written, total = self._cached(form, request.body)
        usage = FakeUsage(
            total, _tokens(words) + reply.reasoning_tokens, read, written, reply.reasoning_tokens
        )
        return SignedReply(reply, usage, request.model, self.counts.requests, signature)

    def _cached(self, form: WireForm, body: Mapping[str, Any]) -> tuple[int, int, int]:
        """Return the tokens read from the cache, written to it, and of the whole question."""
        parts, marked = [], 0
        for part in form.prompt(body):
            text = json.dumps(_unmark(part), sort_keys=True)
            parts.append(text)
            if "cache_control" in json.dumps(part):
                marked = len(parts)
        last = marked if form.caches_marked_only else len(parts)
        read = max((n for n in range(last + 1) if tuple(parts[:n]) in self._known), default=0)
        # Everything up to a mark is one entry; without marks every part ends one.
        self._known.update(tuple(parts[:n]) for n in range(1, last + 1))
        sizes = [_tokens(part) for part in parts]
        return sum(sizes[:read]), sum(sizes[read:last]) if form.caches_marked_only else 0, sum(sizes)

    def _wrong_signature(self, body: Mapping[str, Any]) -> str:
        """Return what is wrong with the thoughts that a question brings back; empty where nothing is."""
        given = {text for key, text in _walk(body) if key in _SIGNATURES}
        if unknown := given - self._signed - {_UNSIGNED}:
            return f"invalid signature {min(unknown)!r}"
        called = {text for key, text in _walk(body) if key in _CALLS}
        for call_id, signature in self._issued.items():
            if call_id in called and signature not in given:
                return f"the call {call_id} came with a thought; its signature must be sent back"
        return ""


def _walk(value: Any) -> Iterator[tuple[str, str]]:
    """Yield every text of a JSON value with the name of its member."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, str):
                yield key, inner
            else:
                yield from _walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner)


def _unmark(part: Any) -> Any:
    """Return a part of a question without its marks for the cache."""
    if isinstance(part, Mapping):
        if set(part) == {"part", "cache_control"}:
            return _unmark(part["part"])
        return {key: _unmark(inner) for key, inner in part.items() if key != "cache_control"}
    return [_unmark(inner) for inner in part] if isinstance(part, list) else part


def _tokens(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)


def _format_head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Fake", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _pause(reader: asyncio.StreamReader, seconds: float) -> None:
    """Wait.

    Raises:
        ReaderGone: the connection was closed meanwhile.
    """
    if seconds <= 0:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await reader.read(1)
        raise ReaderGone


async def _write(
    writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str], body: bytes, at_once: int | None
) -> None:
    plain = {"content-type": "application/json", "content-length": str(len(body))}
    writer.write(_format_head(status, {**plain, **headers}))
    for piece in _cut(body, at_once):
        writer.write(piece)
        await writer.drain()


def _cut(data: bytes, at_once: int | None) -> Iterator[bytes]:
    step = at_once or len(data) or 1
    for at in range(0, len(data), step):
        yield data[at : at + step]


async def _stream(
    events: Iterator[WireEvent], reply: FakeReply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Write events; return whether all of them were written."""
    left = reply.cut_after_bytes
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data)
        line = (f"event: {name}\n" if name else "") + f"data: {text}\n\n"
        for piece in _cut(line.encode(), reply.write_bytes):
            part = piece if left is None else piece[:left]
            if part:
                writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                await writer.drain()
            if left is not None:
                left -= len(part)
                if left <= 0:
                    return False
            # A client that leaves is only noticed by reading: writes succeed until the kernel's buffer is
            # full.
            if reader.at_eof():
                raise ReaderGone
        await _pause(reader, reply.between_s)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True
