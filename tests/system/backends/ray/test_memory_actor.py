"""The actor of memory: hosts may ask four things of it, and only its supervisor is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.backends.ray.hosts import actors
from sessiontree.backends.ray.hosts.actors import HostSettings, MemoryActor
from sessiontree.contracts.errors import MemoryFailed, PermissionDenied, ToolError, ValidationError
from sessiontree.contracts.values.memory import MemoryQuery, MemoryScope, NewRecord, Selection
from sessiontree.memory.settings import MemorySettings
from sessiontree.runtime.memory.memory_api import Ended, MemoryRight, ScopeAnswer
from sessiontree.runtime.transport.rpc import RpcResponse
from tests.unit.runtime.memory_fakes import ListStore, Supervisor

KEY = "the key"
SCOPE = MemoryScope("t1", "main/b2", "default", "/workspace")
END = Ended("t1", "default", "/workspace", 7)
RECORD = NewRecord("the sky is blue")
SKY = MemoryQuery("sky")
HEAR: Any = MemoryActor.hear
"""As the function it is; its type says how Ray calls it."""


def anybody(token: str, right: MemoryRight) -> MemoryScope:
    """Let every grant stand for one session."""
    return SCOPE


class Serving:
    """The supervisor's actor: it answers memory as a supervisor in a few lines does."""

    def __init__(self) -> None:
        self.supervisor = Supervisor(anybody)
        self.pids: list[int] = []
        self.serve = self

    def remote(self, token: str, name: str, given: bytes) -> asyncio.Future[bytes]:
        """Begin a call; its answer comes later."""
        answer: asyncio.Future[bytes] = asyncio.ensure_future(self._answer(token, name, load_value(given)))
        return answer

    async def _answer(self, token: str, name: str, given: tuple[Any, ...]) -> bytes:
        assert token == KEY
        if name == "begun":
            self.pids.append(given[0])
            return dump_value(RpcResponse("", None))
        answer: ScopeAnswer = await getattr(self.supervisor, name)(*given)
        return dump_value(RpcResponse("", answer))


class Memory:
    """The actor of memory in this process, over a store in a list."""

    def __init__(self, store: ListStore) -> None:
        self.serving = Serving()
        self.actor = MemoryActor(self.serving, HostSettings(KEY, 1, 2**30, None), MemorySettings(), "/memory")

    async def ask(self, name: str, *given: Any) -> Any:
        """Return the answer to a host, or raise its error."""
        answer: RpcResponse = load_value(await self.actor.answer(name, dump_value(("token", *given))))
        return answer.unwrap()

    async def hear(self, key: str, name: str, *given: Any) -> None:
        """Notify the actor."""
        await HEAR(self.actor, key, name, dump_value(given))


@pytest.fixture
def store() -> ListStore:
    """What the actor opens."""
    return ListStore()


@pytest.fixture
def memory(store: ListStore, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The actor, which neither watches this process nor loads a library."""

    async def open_store(settings: MemorySettings, uri: str) -> ListStore:
        return store

    watch: Callable[..., None] = lambda *_: None  # noqa: E731 - a name for its type
    monkeypatch.setattr(actors, "open_store", open_store)
    monkeypatch.setattr(actors, "OwnProcess", watch)
    return Memory(store)


@pytest.mark.parametrize(
    "name", ["close", "revoked", "ended", "hear", "_ensure_open", "__init__", "answer", ""]
)
async def test_hosts_ask_what_grants_allow_and_nothing_else(memory: Memory, name: str) -> None:
    """A host's call names one of four things."""
    with pytest.raises(PermissionDenied, match="is not one of search, select, store, forget"):
        await memory.ask(name)


async def test_process_reports_itself_once(memory: Memory) -> None:
    """Before its first answer, however many ask."""
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(memory.ask("search", SKY))
    assert len(memory.serving.pids) == 1


@pytest.mark.parametrize("key", ["", "guess", "\udc80"])
async def test_only_the_supervisor_is_heard(memory: Memory, store: ListStore, key: str) -> None:
    """Who shows another key revokes nothing, marks nothing, and ends nothing."""
    questions = memory.serving.supervisor.questions
    await memory.ask("store", (RECORD,), "a")
    await memory.ask("search", SKY)
    await memory.hear(key, "revoked", "token")
    await memory.hear(key, "ended", END)
    await memory.hear(KEY, "close")
    await memory.actor.close(key)
    assert len(await memory.ask("search", SKY)) == 1
    assert len(questions) == 2, "it still knows the grant"
    await memory.hear(KEY, "revoked", "token")
    await memory.hear(KEY, "ended", END)
    await memory.ask("search", SKY)
    assert len(questions) == 3
    await memory.actor.close(KEY)
    assert store.finished == {"t1": END}
    assert store.is_closed


async def test_notice_without_the_key_is_not_opened(memory: Memory) -> None:
    """The bytes of a stranger could run anything; the key is looked at first."""
    await HEAR(memory.actor, "guess", "revoked", b"no pickle")
    assert memory.serving.pids == []


async def test_errors_arrive_as_they_were_raised(memory: Memory, store: ListStore) -> None:
    """Typed, whatever it is; one that can't travel by its words."""
    store.failure = MemoryFailed("/memory", "no space left", "unwritable")
    with pytest.raises(MemoryFailed) as found:
        await memory.ask("store", (RECORD,), "a")
    assert found.value.cause == "unwritable"
    store.failure = ExceptionGroup("many", [OSError(7)])
    with pytest.raises(Exception, match="many") as other:
        await memory.ask("store", (RECORD,), "b")
    assert not isinstance(other.value, ToolError)
    with pytest.raises(ValidationError):
        await memory.ask("store", (), "c")
    with pytest.raises(ValidationError):
        await memory.ask("select", Selection(path="x"), 0)
