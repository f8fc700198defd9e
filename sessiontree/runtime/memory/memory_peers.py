"""Memory shared by several programs: one process writes the store and serves the others.

Only one process writes a store. Another program that finds it locked connects to the writer's socket in the
store's directory and sends its requests there. When the writer ends, the first process that locks the store
becomes the next writer. Each program checks the grants of its own sessions; a request names its scope.

Both sides send lines of JSON: ``{"id", "do", "given"}``, answered in any order by ``{"id", "value"}`` or
``{"id", "error": [kind, place, reason]}``. The first line carries the key from a file next to the socket:
Workers and commands can reach a socket, but can't read that file.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import json
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from pydantic import TypeAdapter, ValidationError

from sessiontree.contracts.errors import MemoryFailed, describe_error
from sessiontree.contracts.tools.thread_calls import claim_in_thread
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.memory import (
    MemoryHit,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Selection,
)
from sessiontree.memory.failures import refuse_embedder
from sessiontree.memory.place import resolve_directory
from sessiontree.memory.settings import MemorySettings
from sessiontree.runtime.memory.memory_api import MemoryStore
from sessiontree.runtime.transport.rpc import collect_methods
from sessiontree.runtime.transport.socket_files import listen_at, open_connection_to

if TYPE_CHECKING:
    from sessiontree.memory.embedders import Embedder
    from sessiontree.memory.store import LanceMemoryStore

SOCKET: Final = "writer.socket"
KEY: Final = "writer.key"
SUCCESSION_S: Final = 10.0
"""Most seconds until a process writes the store again, or serves it."""
RETRY_S: Final = 0.1
HELLO_S: Final = 5.0
MAX_LINE_BYTES: Final = 128 * 2**20
"""Long enough for a thousand records of 20,000 characters."""
MAX_PEERS: Final = 64


class _Gone(Exception):
    """The process that wrote the store has ended."""


@cache
def _build_adapters() -> dict[str, tuple[TypeAdapter[Any], TypeAdapter[Any]]]:
    """Return for each method of a store the adapters of its arguments and of its result."""
    made = {}
    for name, method in collect_methods(MemoryStore).items():
        hints = get_type_hints(method.function)
        takes: Any = tuple.__class_getitem__(tuple(hints[each] for each in method.parameters))
        made[name] = (TypeAdapter(takes), TypeAdapter(hints["return"]))
    return made


class SharedStore:
    """A store that this process writes, or uses through the process that writes it. Open it first.

    Args:
        directory: The store's directory, on this machine.
        embedder: Identity of the embedder of its texts.
        open_own: Opens the store for writing.
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
        """Become the writer, or connect to it.

        Raises:
            MemoryFailed: another process writes the store and does not serve it.
            MemoryFailed: the writer uses another embedder.
            MemoryFailed: the store can't be opened.
        """
        self._unfinished = set(await self._ask("list_unfinished_trees"))

    async def store(self, records: Sequence[NewRecord], scope: MemoryScope, key: str) -> list[str]:
        """Store records, once per key; return their ids."""
        stored: list[str] = await self._ask("store", list(records), scope, key)
        return stored

    async def search(self, query: MemoryQuery, scope: MemoryScope | None) -> list[MemoryHit]:
        """Return the best matches of a query."""
        hits: list[MemoryHit] = await self._ask("search", query, scope)
        return hits

    async def select(self, selection: Selection, scope: MemoryScope | None, limit: int) -> list[MemoryRecord]:
        """Return the records of a selection."""
        found: list[MemoryRecord] = await self._ask("select", selection, scope, limit)
        return found

    async def forget(self, selection: Selection, scope: MemoryScope | None) -> list[str]:
        """Remove the records of a selection; return their ids, without those that a lost writer removed."""
        gone: list[str] = await self._ask("forget", selection, scope)
        return gone

    async def mark_finished(self, tree_id: str, agent_id: str, workspace: str, ended_at_ms: int) -> None:
        """Mark a tree whose Main has completed."""
        await self._ask("mark_finished", tree_id, agent_id, workspace, ended_at_ms)

    async def list_unfinished_trees(self) -> set[str]:
        """Return the trees that were not marked as finished when the store was opened."""
        return self._unfinished

    async def close(self) -> None:
        """Close the store; another process may write it from now on."""
        self._closed = True
        using, self._using = self._using, None
        if using is not None:
            await asyncio.wait([using])
            if not using.cancelled() and using.exception() is None:
                await using.result().close()

    async def _ask(self, name: str, *given: Any) -> Any:
        """Send a request to the writer; after a writer was lost, it is sent again to its successor."""
        while True:
            if self._closed:
                raise MemoryFailed(str(self._directory), "it was closed in this process")
            if self._using is None:
                self._using = asyncio.ensure_future(self._elect())
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

    async def _elect(self) -> _OwnStore | _Peer:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SUCCESSION_S
        while True:
            try:
                return await _OwnStore.begun(await self._open_own(), self._directory, self._embedder)
            except MemoryFailed as error:
                if error.cause != "locked":
                    raise
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
        """Serve a store whose lock this process holds.

        Raises:
            MemoryFailed: the socket or its key can't be created.
        """
        own = cls(store, directory, embedder)
        try:
            listener = await claim_in_thread(own._listen, socket.socket.close)
            own._server = await asyncio.start_unix_server(own._hear, sock=listener, limit=MAX_LINE_BYTES)
        except asyncio.CancelledError:
            await store.close()
            raise
        except OSError as error:
            await store.close()
            reason = f"can't serve other programs there: {error.strerror or error}"
            raise MemoryFailed(str(directory), f"{reason}; mend its directory", "unwritable") from error
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
        return listen_at(self._directory / SOCKET, MAX_PEERS)

    async def ask(self, name: str, *given: Any) -> Any:
        return await getattr(self._store, name)(*given)

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
            if len(self._talks) <= MAX_PEERS and await self._is_known(reader, writer):
                async for line in reader:
                    task = asyncio.create_task(self._answer(parse_json(line), writer))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
        except (OSError, ValueError, TimeoutError, asyncio.CancelledError):
            pass  # the peer has disconnected or sent an invalid line, or the store is being closed
        finally:
            for task in answering:
                task.cancel()
            writer.close()
            self._talks.discard(talk)

    async def _is_known(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        async with asyncio.timeout(HELLO_S):
            shown = str(parse_json(await reader.readline() or "null"))
            if not hmac.compare_digest(shown.encode(), self._key.encode()):
                return False
            await _say(writer, self._embedder)
        return True

    async def _answer(self, asked: Any, writer: asyncio.StreamWriter) -> None:
        number, name = asked["id"], asked["do"]
        try:
            takes, gives = _build_adapters()[name]
            value = await getattr(self._store, name)(*takes.validate_python(asked["given"]))
            answer = {"id": number, "value": gives.dump_python(value, mode="json")}
        except MemoryFailed as error:
            answer = {"id": number, "error": [error.place, error.reason, error.cause]}
        except (ValidationError, KeyError) as error:
            reason = f"another program asked what this one does not know: {describe_error(error)}"
            answer = {"id": number, "error": [str(self._directory), reason, "other"]}
        with contextlib.suppress(OSError):
            await _say(writer, answer)


class _Peer:
    """The connection to another process that writes the store."""

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
        """Connect to the process that serves a store; return None if no process serves it yet.

        Raises:
            MemoryFailed: it uses another embedder.
        """
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(HELLO_S):
                key = await asyncio.to_thread((directory / KEY).read_text, "ascii")
                line = await open_connection_to(directory / SOCKET)
                reader, writer = await asyncio.open_unix_connection(sock=line, limit=MAX_LINE_BYTES)
                await _say(writer, key)
                theirs = str(parse_json(await reader.readline()))
        except (OSError, ValueError, TimeoutError):
            if writer is not None:
                writer.close()
            return None
        if theirs != embedder:
            writer.close()
            raise refuse_embedder(str(directory), theirs, embedder)
        return cls(str(directory), reader, writer, theirs)

    async def ask(self, name: str, *given: Any) -> Any:
        if self._is_gone:
            raise _Gone
        takes, gives = _build_adapters()[name]
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            told = {"id": number, "do": name, "given": takes.dump_python(given, mode="json")}
            with contextlib.suppress(OSError):  # the reading side notices the end
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
                told = parse_json(line)
                answer = self._waiting.get(told["id"])
                if answer is None or answer.done():
                    continue
                if "error" in told:
                    answer.set_exception(MemoryFailed(*told["error"]))
                else:
                    answer.set_result(told["value"])
        except (OSError, ValueError):
            pass  # handled like the end of the connection
        finally:
            self._is_gone = True
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_Gone())
            self._writer.close()


async def _say(writer: asyncio.StreamWriter, told: Any) -> None:
    writer.write(json.dumps(told).encode() + b"\n")
    await writer.drain()


def _load_store(settings: MemorySettings) -> tuple[type[LanceMemoryStore], Embedder]:
    """Return the class of stores, and the embedder of the settings. LanceDB takes a second to load."""
    from sessiontree.memory.embedders import make_embedder
    from sessiontree.memory.store import LanceMemoryStore

    return LanceMemoryStore, make_embedder(settings.embedder)


async def open_store(settings: MemorySettings, uri: str) -> MemoryStore:
    """Open a store for writing, shared with other programs; blocking work runs in a thread.

    A store on this machine is written by one process, which serves the others. For a store that is reached
    over the network, the programs must make sure that only one of them writes it.

    Args:
        settings: The embedder of its texts, and how the store is reached.
        uri: Where the store is.

    Raises:
        ConfigError: the embedder is not available.
        MemoryFailed: the store can't be opened.
    """
    store, embedder = await asyncio.to_thread(_load_store, settings)
    wishes: dict[str, Any] = {} if settings.ann_above is None else {"ann_above": settings.ann_above}

    async def open_own() -> MemoryStore:
        return await store.open(uri, embedder, storage_options=settings.revealed_options() or None, **wishes)

    directory = resolve_directory(uri)
    if directory is None:
        return await open_own()
    shared = SharedStore(directory, embedder.identity, open_own)
    try:
        await shared.open()
    except asyncio.CancelledError:
        await shared.close()  # its lock is held as soon as it is open
        raise
    return shared
