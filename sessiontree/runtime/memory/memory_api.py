"""Memory as the other processes of a runtime reach it: its interfaces, and the clients that call them.

Only the supervisor knows whose a grant is, and only memory writes the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.values.memory import (
    MemoryHit,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Selection,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.transport.link import HostLost
from sessiontree.runtime.transport.rpc import RpcMethod, RpcPort, make_proxy, rpc
from sessiontree.runtime.transport.supervisor_api import ActorRow

MemoryRight: TypeAlias = Literal["recall", "remember", "forget"]


@dataclass(frozen=True, slots=True)
class Ended:
    """A tree whose Main has completed; later trees of the same agent and workspace see its records."""

    tree_id: str
    agent_id: str
    workspace: str
    ended_at_ms: int


def make_end_notice(config: TreeConfig, ended_at_ms: int) -> Ended:
    """Return the notice to memory about a tree whose Main has completed."""
    return Ended(config.tree_id, config.agents[0].name, config.workspace, ended_at_ms)


def make_memory_scope(config: TreeConfig, session: str) -> MemoryScope:
    """Return the scope by which memory knows a session."""
    return MemoryScope(config.tree_id, session, config.agents[0].name, config.workspace)


Whose: TypeAlias = "MemoryScope | Exception"
"""The scope of a grant, or why the grant does not give the right."""


@dataclass(frozen=True, slots=True)
class ScopeAnswer:
    """A supervisor's answer about grants."""

    answers: Sequence[Whose]
    """One for each grant, in order."""
    ended: tuple[Ended, ...] = ()
    """Trees that completed before this answer and that memory may not know as completed: a search after a
    tree has completed finds its records."""


class MemoryAuthority(Protocol):
    """The requests of memory to its supervisor."""

    @rpc()
    async def resolve_grants(self, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        """Return for each grant its scope now, or the error for a right that it does not give."""
        ...

    @rpc()
    async def list_completed_trees(self, tree_ids: Sequence[str]) -> Sequence[Ended]:
        """Return those trees of the journal whose Main has completed."""
        ...


class MemoryProcessAuthority(MemoryAuthority, Protocol):
    """The requests of memory in a process of its own."""

    @rpc()
    async def begun(self, pid: int) -> None:
        """Take the id of its process, which knows no grant yet."""
        ...


class MemoryStore(Protocol):
    """Records on a disk, written by this process alone.

    Raises (every method):
        MemoryFailed: the store can't be read or written now; nothing acknowledged is lost.
    """

    @rpc()
    async def store(self, records: Sequence[NewRecord], scope: MemoryScope, key: str) -> list[str]:
        """Return the records' ids once they are durable; the same key in one tree adds them once."""
        ...

    @rpc()
    async def search(self, query: MemoryQuery, scope: MemoryScope | None) -> list[MemoryHit]:
        """Return the records that fit a query best among those that a scope may see, best first."""
        ...

    @rpc()
    async def select(self, selection: Selection, scope: MemoryScope | None, limit: int) -> list[MemoryRecord]:
        """Return the records of a selection among those that a scope may see, oldest first."""
        ...

    @rpc()
    async def forget(self, selection: Selection, scope: MemoryScope | None) -> list[str]:
        """Remove the records of a selection; return the ids of those removed."""
        ...

    @rpc()
    async def mark_finished(self, tree_id: str, agent_id: str, workspace: str, ended_at_ms: int) -> None:
        """Note that a tree's Main has completed; repeating the call changes nothing."""
        ...

    @rpc()
    async def list_unfinished_trees(self) -> set[str]:
        """Return the trees that have records and are not marked as finished."""
        ...

    async def close(self) -> None:
        """Write what is pending and release the store."""
        ...


class MemoryApi(Protocol):
    """The requests of a host to memory while a call executes; the grant identifies the session.

    Raises (every method):
        SessionClosed: the grant is not valid now.
        PermissionDenied: sessions of its kind may not ask this.
        ValidationError: an argument is not valid.
        MemoryFailed: memory can't be reached, read or written now.
    """

    @rpc()
    async def search(self, grant: str, query: MemoryQuery) -> list[MemoryHit]:
        """Return the records that fit a query best."""
        ...

    @rpc()
    async def select(self, grant: str, selection: Selection, limit: int) -> list[MemoryRecord]:
        """Return the records a selection names."""
        ...

    @rpc()
    async def store(self, grant: str, records: Sequence[NewRecord], key: str) -> list[str]:
        """Store records once for a key; returns their ids when they are durable."""
        ...

    @rpc()
    async def forget(self, grant: str, selection: Selection, key: str) -> list[str]:
        """Remove the records a selection names; returns their ids."""
        ...


class MemoryPort(Protocol):
    """What the supervisor asks of memory. Methods that are not coroutines return at once."""

    def revoked(self, grant: str) -> None:
        """Say that a grant counts no more."""
        ...

    def ended(self, end: Ended) -> None:
        """Notify memory that a tree's Main has completed, which is durable."""
        ...

    def actors(self) -> list[ActorRow]:
        """Return the memory process if there is one and it runs."""
        ...

    async def close(self) -> None:
        """End memory."""
        ...


class MemoryProcess(Protocol):
    """The memory process, as its supervisor holds it."""

    @property
    def connection(self) -> Any:
        """The connection that hosts use to ask it."""
        ...

    def tell(self, name: str, *given: Any) -> None:
        """Send it a notice without waiting."""
        ...

    async def end(self) -> None:
        """Let it write what is pending, then end it."""
        ...


ANSWER_S: Final = 100.0
"""How long memory may take for one answer, including its own start."""
AGAIN_S: Final = 0.1
"""How long to wait before memory is asked again while it starts."""
MAX_LOSSES: Final = 8
"""How often memory may be lost during one call."""


class MemoryClient:
    """Memory for the sessions of one host.

    Args:
        find: Takes a grant and asks the supervisor for a way to memory, which raises HostLost if memory is
            lost meanwhile; it may or may not have done what was asked.
        answer_s: How long one answer may take.
        again_s: How long to wait before asking again.
    """

    def __init__(
        self,
        find: Callable[[str], Awaitable[RpcPort]],
        *,
        answer_s: float = ANSWER_S,
        again_s: float = AGAIN_S,
    ) -> None:
        self._find = find
        self._answer_s = answer_s
        self._again_s = again_s
        self._port: RpcPort | None = None
        self.memory: MemoryApi = make_proxy(MemoryApi, self)
        """The interface of memory."""

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Ask memory; if its process is lost meanwhile, ask again.

        Raises:
            MemoryFailed: it did not answer in time, or was lost too often.
            Exception: as memory raises.
        """
        name, grant = method.name, given[0]
        lost: HostLost | None = None
        patience = asyncio.timeout(self._answer_s)
        try:
            async with patience:
                for _ in range(MAX_LOSSES):
                    try:
                        if self._port is None:
                            self._port = await self._find(grant)
                        return await self._port.ask(method, given)
                    except HostLost as loss:
                        lost, self._port = loss, None
                    await asyncio.sleep(self._again_s)
        except TimeoutError:
            if not patience.expired():
                raise
            why = f"; it was lost meanwhile: {lost}" if lost is not None else ""
            raise MemoryFailed(
                name, f"no answer within {self._answer_s:g} s{why}; try again, or go on without it"
            ) from None
        raise MemoryFailed(
            name,
            f"its process was lost {MAX_LOSSES} times over this call, the last: {lost}; go on without it",
        )


NAME = "memory"


class MemoryLink(MemoryProcessAuthority):
    """The supervisor's link to the memory process. The engine restarts that process when it dies.

    Args:
        start: Starts it.
        find_authority: Returns the supervisor, or raises an error if it is not open.
    """

    def __init__(
        self, start: Callable[[], MemoryProcess], find_authority: Callable[[], MemoryAuthority]
    ) -> None:
        self._start = start
        self._find_authority = find_authority
        self._process: MemoryProcess | None = None
        self._pid = 0
        self._told: set[str] = set()
        """Grants that the process may have cached."""
        self._ended: list[Ended] = []
        """Completed trees that the process may not know as completed yet."""

    def connection(self) -> Any:
        """Return the connection for hosts; start the process if it does not run."""
        if self._process is None:
            self._process = self._start()
        return self._process.connection

    async def begun(self, pid: int) -> None:
        """Note that the process has started; it knows no grant yet."""
        self._find_authority()
        self._pid = pid
        self._told.clear()
        self._ended.clear()

    async def resolve_grants(self, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        """Return the scopes of grants and note them; memory is notified when one is revoked."""
        found = await self._find_authority().resolve_grants(wanted)
        for (grant, right), answer in zip(wanted, found.answers, strict=True):
            if right == "recall" and not isinstance(answer, Exception):
                self._told.add(grant)
        ended, self._ended = tuple(self._ended), []
        return ScopeAnswer(found.answers, ended)

    async def list_completed_trees(self, tree_ids: Sequence[str]) -> Sequence[Ended]:
        """Return those trees of the journal whose Main has completed."""
        return await self._find_authority().list_completed_trees(tree_ids)

    def revoked(self, grant: str) -> None:
        """Say that a grant counts no more."""
        if self._process is not None and grant in self._told:
            self._told.discard(grant)
            self._process.tell("revoked", grant)

    def ended(self, end: Ended) -> None:
        """Notify memory that a tree's Main has completed; if it does not run, it asks when it starts."""
        if self._process is not None:
            # Also sent with the next answer, because calls of an engine may overtake each other.
            self._ended.append(end)
            self._process.tell("ended", end)

    def actors(self) -> list[ActorRow]:
        """Return its process, if it runs."""
        if self._process is None:
            return []
        return [ActorRow(NAME, "memory", self._pid, "starting" if self._pid == 0 else "structural")]

    async def close(self) -> None:
        """Let the process write what is pending, and end it."""
        if self._process is not None:
            process, self._process = self._process, None
            await process.end()
