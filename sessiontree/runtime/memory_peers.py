"""Memory of several programs over one store: who writes it serves the others, and one of them succeeds it.

One process alone writes a store. Another that finds it written connects to that process's socket in the
store's directory, and has it do what is asked there; when that process ends, whoever is first becomes the
next. Each program looks at its own sessions' grants; what it asks here says for whom.

Lines of JSON go both ways: ``{"id", "do", "given"}``, answered in any order by ``{"id", "value"}`` or by
``{"id", "error": [kind, place, reason]}``. The first line shows the key that lies beside the socket: Workers
and commands can reach a socket, but can't read there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import importlib
import itertools
import json
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from sessiontree.contracts.errors import (
    EmbedderMismatch,
    MemoryCorrupt,
    MemoryFailed,
    MemoryLocked,
    MemoryUnwritable,
    words_of,
)
from sessiontree.contracts.memory import Hit, MemoryQuery, MemoryRecord, MemoryScope, NewRecord, Selection
from sessiontree.memory.place import directory_of
from sessiontree.memory.settings import MemorySettings
from sessiontree.runtime.memory_protocol import MemoryStore
from sessiontree.runtime.socket_files import listen_at, socket_address

SOCKET: Final = "writer.socket"
KEY: Final = "writer.key"
SUCCESSION_S: Final = 10.0
"""How long it may take until somebody writes the store again, or serves it."""
RETRY_S: Final = 0.1
HELLO_S: Final = 5.0
MOST_LINE_BYTES: Final = 128 * 2**20
"""A thousand records of 20,000 characters fit."""
MOST_PEERS: Final = 64
_FAILURES: Final = {each.__name__: each for each in (MemoryFailed, MemoryCorrupt, MemoryUnwritable)}


class _Gone(Exception):
    """The process that wrote the store ended."""


@cache
def _words() -> dict[str, tuple[TypeAdapter[Any], TypeAdapter[Any]]]:
    """Return what each thing that may be asked is given, and what it answers."""
    scope = MemoryScope | None
    made: dict[str, tuple[Any, Any]] = {
        "store": (tuple[list[NewRecord], MemoryScope, str], list[str]),
        "search": (tuple[MemoryQuery, scope], list[Hit]),
        "select": (tuple[Selection, scope, int], list[MemoryRecord]),
        "forget": (tuple[Selection, scope], list[str]),
        "mark_finished": (tuple[str, str, str, int], None),
        "unfinished_trees": (tuple[()], set[str]),
    }
    return {name: (TypeAdapter(given), TypeAdapter(value)) for name, (given, value) in made.items()}


async def _done(store: MemoryStore, name: str, given: Sequence[Any]) -> Any:
    """Do what is asked of a store, by its name."""
    if name == "mark_finished":
        tree_id, agent_id, workspace, ended_at_ms = given
        return await store.mark_finished(
            tree_id, agent_id=agent_id, workspace=workspace, ended_at_ms=ended_at_ms
        )
    if name == "unfinished_trees":
        return store.unfinished_trees()
    return await getattr(store, name)(*given)


class SharedStore:
    """A store that this process writes, or has written by the process that does; open it first.

    Args:
        directory: Of the store, on this machine.
        embedder: Identity of what embeds its texts.
        open_own: Opens it for writing.
    """

    def __init__(
        self, directory: Path, embedder: str, open_own: Callable[[], Awaitable[MemoryStore]]
    ) -> None:
        self._directory = directory
        self._embedder = embedder
        self._open_own = open_own
        self._using: asyncio.Future[_OwnStore | _Peer] | None = None
        self._unfinished: set[str] = set()
        self._closed = False

    async def open(self) -> None:
        """Become the one that writes it, or find that one.

        Raises:
            MemoryLocked: somebody writes it and serves nobody.
            EmbedderMismatch: whoever writes it embeds otherwise.
            MemoryFailed: it can't be opened.
        """
        self._unfinished = set(await self._ask("unfinished_trees"))

    async def store(self, records: Sequence[NewRecord], scope: MemoryScope, key: str) -> list[str]:
        """Store records, once for a key."""
        stored: list[str] = await self._ask("store", list(records), scope, key)
        return stored

    async def search(self, query: MemoryQuery, scope: MemoryScope | None) -> list[Hit]:
        """Return what fits best."""
        hits: list[Hit] = await self._ask("search", query, scope)
        return hits

    async def select(self, selection: Selection, scope: MemoryScope | None, limit: int) -> list[MemoryRecord]:
        """Return what a selection names."""
        found: list[MemoryRecord] = await self._ask("select", selection, scope, limit)
        return found

    async def forget(self, selection: Selection, scope: MemoryScope | None) -> list[str]:
        """Remove it. Where the writer ended meanwhile, what it had removed is not told."""
        gone: list[str] = await self._ask("forget", selection, scope)
        return gone

    async def mark_finished(self, tree_id: str, *, agent_id: str, workspace: str, ended_at_ms: int) -> None:
        """Note that a tree's Main has completed."""
        await self._ask("mark_finished", tree_id, agent_id, workspace, ended_at_ms)

    def unfinished_trees(self) -> set[str]:
        """Return the trees that were not marked so when it was opened."""
        return self._unfinished

    async def close(self) -> None:
        """Let the store go; another program's process may write it from now on."""
        self._closed = True
        using, self._using = self._using, None
        if using is not None:
            await asyncio.wait([using])
            if not using.cancelled() and using.exception() is None:
                await using.result().close()

    async def _ask(self, name: str, *given: Any) -> Any:
        """Ask whoever writes the store; each question may be asked again of a successor."""
        while True:
            if self._closed:
                raise MemoryFailed(str(self._directory), "it was closed in this process")
            if self._using is None:
                self._using = asyncio.ensure_future(self._elected())
            using = self._using
            try:
                return await (await asyncio.shield(using)).ask(name, *given)
            except _Gone:
                if self._using is using:
                    self._using = None
            finally:
                has_failed = using.done() and (using.cancelled() or using.exception() is not None)
                if has_failed and self._using is using:
                    self._using = None

    async def _elected(self) -> _OwnStore | _Peer:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SUCCESSION_S
        while True:
            try:
                return await _OwnStore.begun(await self._open_own(), self._directory, self._embedder)
            except MemoryLocked:
                peer = await _Peer.found(self._directory, self._embedder)
                if peer is not None:
                    return peer
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(RETRY_S)


class _OwnStore:
    """The store that this process writes, and its socket."""

    def __init__(self, store: MemoryStore, directory: Path, embedder: str) -> None:
        self._store = store
        self._directory = directory
        self._embedder = embedder
        self._key = secrets.token_hex(32)
        self._talks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    async def begun(cls, store: MemoryStore, directory: Path, embedder: str) -> _OwnStore:
        """Serve a store of which this process holds the lock.

        Raises:
            MemoryUnwritable: the socket or its key can't be made.
        """
        own = cls(store, directory, embedder)
        try:
            listener = await asyncio.to_thread(own._listen)
            own._server = await asyncio.start_unix_server(own._hear, sock=listener, limit=MOST_LINE_BYTES)
        except OSError as error:
            await store.close()
            reason = f"can't serve other programs there: {error.strerror or error}"
            raise MemoryUnwritable(str(directory), f"{reason}; mend its directory") from error
        return own

    def _listen(self) -> socket.socket:
        new, path = self._directory / f"{KEY}.new", self._directory / KEY
        new.unlink(missing_ok=True)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, self._key.encode("ascii"))
        finally:
            os.close(file)
        new.replace(path)
        return listen_at(self._directory / SOCKET, MOST_PEERS)

    async def ask(self, name: str, *given: Any) -> Any:
        return await _done(self._store, name, given)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for talk in list(self._talks):
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks)
        for name in (SOCKET, KEY):
            with contextlib.suppress(OSError):
                (self._directory / name).unlink()
        await self._store.close()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None  # noqa: S101 - streams run this in a task
        self._talks.add(talk)
        answering: set[asyncio.Task[None]] = set()
        try:
            if len(self._talks) <= MOST_PEERS and await self._is_known(reader, writer):
                async for line in reader:
                    task = asyncio.create_task(self._answer(json.loads(line), writer))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
        except (OSError, ValueError, TimeoutError, asyncio.CancelledError):
            pass  # whoever asked is gone or says nothing that can be read, or this is the end
        finally:
            for task in answering:
                task.cancel()
            writer.close()
            self._talks.discard(talk)

    async def _is_known(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        async with asyncio.timeout(HELLO_S):
            shown = str(json.loads(await reader.readline() or "null"))
            if not hmac.compare_digest(shown.encode(), self._key.encode()):
                return False
            await _say(writer, self._embedder)
        return True

    async def _answer(self, asked: Any, writer: asyncio.StreamWriter) -> None:
        number, name = asked["id"], asked["do"]
        try:
            takes, gives = _words()[name]
            value = await _done(self._store, name, takes.validate_python(asked["given"]))
            answer = {"id": number, "value": gives.dump_python(value, mode="json")}
        except MemoryFailed as error:
            kind = type(error).__name__
            answer = {"id": number, "error": [kind, error.place, error.reason]}
        except (ValidationError, KeyError) as error:
            reason = f"another program asked what this one does not know: {words_of(error)}"
            answer = {"id": number, "error": ["MemoryFailed", str(self._directory), reason]}
        with contextlib.suppress(OSError):
            await _say(writer, answer)


class _Peer:
    """The way to another process that writes the store."""

    def __init__(
        self, place: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, embedder: str
    ) -> None:
        self._place = place
        self._reader = reader
        self._writer = writer
        self.embedder = embedder
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._is_gone = False
        self._hearing = asyncio.create_task(self._hear())

    @classmethod
    async def found(cls, directory: Path, embedder: str) -> _Peer | None:
        """Return the way to whoever serves a store, None where nobody does yet.

        Raises:
            EmbedderMismatch: it embeds otherwise.
        """
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.setblocking(False)
        try:
            async with asyncio.timeout(HELLO_S):
                key = await asyncio.to_thread((directory / KEY).read_text, "ascii")
                with socket_address(directory / SOCKET) as address:
                    await asyncio.get_running_loop().sock_connect(line, address)
                reader, writer = await asyncio.open_unix_connection(sock=line, limit=MOST_LINE_BYTES)
                await _say(writer, key)
                theirs = str(json.loads(await reader.readline()))
        except (OSError, ValueError, TimeoutError):
            line.close()
            return None
        if theirs != embedder:
            writer.close()
            raise EmbedderMismatch(str(directory), theirs, embedder)
        return cls(str(directory), reader, writer, theirs)

    async def ask(self, name: str, *given: Any) -> Any:
        if self._is_gone:
            raise _Gone
        takes, gives = _words()[name]
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            told = {"id": number, "do": name, "given": takes.dump_python(given, mode="json")}
            with contextlib.suppress(OSError):  # its end is heard
                await _say(self._writer, told)
            return gives.validate_python(await answer)
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        self._hearing.cancel()
        await asyncio.wait([self._hearing])

    async def _hear(self) -> None:
        try:
            async for line in self._reader:
                told = json.loads(line)
                answer = self._waiting.get(told["id"])
                if answer is None or answer.done():
                    continue
                if "error" in told:
                    kind, place, reason = told["error"]
                    answer.set_exception(_FAILURES.get(kind, MemoryFailed)(place, reason))
                else:
                    answer.set_result(told["value"])
        except (OSError, ValueError):
            pass  # the same as its end
        finally:
            self._is_gone = True
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_Gone())
            self._writer.close()


async def _say(writer: asyncio.StreamWriter, told: Any) -> None:
    writer.write(json.dumps(told).encode() + b"\n")
    await writer.drain()


_LATE: Final = {
    "store": "sessiontree.memory.store:LanceMemoryStore",
    "embedder": "sessiontree.memory.embedders:make_embedder",
}


def _late(name: str) -> Any:
    module, _, wanted = _LATE[name].partition(":")
    return getattr(importlib.import_module(module), wanted)


async def open_store(settings: MemorySettings, uri: str) -> MemoryStore:
    """Open a store for writing, beside other programs; what blocks is done in a thread.

    A store on this machine is written by one process, which serves the others. Of one that is reached by
    network, programs see to it themselves that one alone writes it.

    Args:
        settings: What embeds its texts, and how it is reached.
        uri: Where it lies.

    Raises:
        ConfigError: its embedder can't be had.
        MemoryFailed: the store can't be opened.
    """
    store = await asyncio.to_thread(_late, "store")
    embedder = await asyncio.to_thread(lambda: _late("embedder")(settings.embedder))
    wishes = {} if settings.ann_above is None else {"ann_above": settings.ann_above}

    async def open_own() -> MemoryStore:
        opened: MemoryStore = await store.open(
            uri, embedder, storage_options=settings.revealed_options() or None, **wishes
        )
        return opened

    directory = directory_of(uri)
    if directory is None:
        return await open_own()
    shared = SharedStore(directory, embedder.identity, open_own)
    await shared.open()
    return shared
