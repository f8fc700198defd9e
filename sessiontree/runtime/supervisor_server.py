"""Taking numbered questions up in order, on a way that may reorder them."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.errors import JournalLocked, PermissionDenied, SessionTreeError, TreeNotFound
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.journal.journal import Journal
from sessiontree.journal.place import JournalPlace
from sessiontree.runtime.clock import TreeClock
from sessiontree.runtime.host_link import Transport
from sessiontree.runtime.memory_client import MemoryLink
from sessiontree.runtime.memory_protocol import MemoryProcess, MemoryRight, ScopeAnswer
from sessiontree.runtime.model_gateway import GatewayLink
from sessiontree.runtime.progress import Progress, ProgressHub, ProgressReader
from sessiontree.runtime.rpc_response import RpcResponse, portable
from sessiontree.runtime.settings import ACTING, OBSERVING, Settings, pool_of
from sessiontree.runtime.supervisor import SupervisorCore
from sessiontree.runtime.supervisor_api import Owner
from sessiontree.runtime.tree_resources import Baggage

PATIENCE_S = 5.0
"""How long a question waits for those before it: one of them may have been lost on the way."""


class SequenceGate:
    """Whose turn it is; numbers begin at 1."""

    def __init__(self) -> None:
        self._passed = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def reach(self, number: int) -> None:
        """Wait until every number before this one has passed, or long enough."""
        if number <= self._passed + 1:
            return
        turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await turn
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(number, None)

    def passed(self, number: int) -> None:
        """Note that a number was taken up; the next one's turn has come."""
        self._passed = max(self._passed, number)
        turn = self._waiting.get(self._passed + 1)
        if turn is not None and not turn.done():
            turn.set_result(None)


RESEND_AFTER_S: Final = 3.0
MOST_LOSSES: Final = 2
ORPHAN_S: Final = 30.0
"""How long a supervisor may take to end after its program was killed; seconds, on a crowded machine more."""
ORPHAN_RETRY_S: Final = 0.1
FOR_OWNER: Final = frozenset(
    {
        "actors", "config_of", "send", "call", "spawn", "result", "stop", "interrupt", "decide", "read",
        "tidings", "record_of", "last_seq", "report", "room", "pending", "receipt", "is_over", "is_ending",
        "is_open",
        "hook_failed", "client_calls", "answer",
    }
)  # fmt: skip
"""What the creating program may ask of the supervisor."""
FOR_GRANTS: Final = frozenset({"spawn", "say", "report", "last_words"})
"""What hosts may ask for the session they embody."""
FOR_MEMORY: Final = frozenset({"begun", "whose", "ended_of"})
"""What memory may ask."""


class Beside(Protocol):
    """What stands beside a supervisor."""

    def start(self) -> None:
        """Begin, on the running loop."""
        ...

    async def close(self) -> None:
        """End; the supervisor has ended before."""
        ...


class Serving:
    """Answers the creating program, which shows a key, and hosts, which show a grant.

    Args:
        key: What the creating program shows.
        settings: What the runtime was started with.
        start_host: Starts a host of a pool, which shows a key of its own for baggage.
        start_gateway: Starts the gateway, likewise.
        start_memory: Starts memory, likewise.
        beside: What else runs beside the supervisor while it is open, such as the control socket.
        security: Looks up what protects the engine all of this runs on.
    """

    def __init__(
        self,
        key: str,
        settings: Settings,
        start_host: Callable[[str, str], Transport],
        start_gateway: Callable[[str], Transport],
        start_memory: Callable[[], MemoryProcess],
        beside: Callable[[Owner], Beside],
        security: Callable[[], Mapping[str, JsonValue]],
    ) -> None:
        self.incarnation = secrets.token_hex(8)
        self._key = key
        self._host_key = secrets.token_hex(16)
        self._gateway_key = secrets.token_hex(16)
        self._memory_key = secrets.token_hex(16)
        self._memory = MemoryLink(start_memory)
        self._settings = settings
        self._start_host = start_host
        self._start_gateway = start_gateway
        self._stand_beside = beside
        self._security = security
        self._beside: Beside | None = None
        self._hub = ProgressHub()
        self._clock = TreeClock()
        self._baggage: dict[str, Baggage] = {}
        self._turns = SequenceGate()
        self._readers: dict[str, ProgressReader] = {}
        self._opening = asyncio.Lock()
        self._core: SupervisorCore | None = None
        self._owner: Owner | None = None

    async def ask(
        self, key: str, name: str, given: tuple[Any, ...], turn: tuple[str, int] | None = None
    ) -> RpcResponse:
        """Answer the creating program; what it numbers for this incarnation is begun in that order."""
        if not _is_same(key, self._key):
            reason = f"asked the supervisor to {name!r} without the key of the creating program"
            return RpcResponse(self.incarnation, None, PermissionDenied(PermissionTier.ELEVATED, reason))
        number = turn[1] if turn is not None and turn[0] == self.incarnation else None
        if number is not None:
            await self._turns.reach(number)
        answering = asyncio.ensure_future(self._answer(self._of_owner, (name, given)))
        if number is not None:
            self._turns.passed(number)
        return await answering

    async def serve(self, token: str, name: str, given: tuple[Any, ...]) -> RpcResponse:
        """Answer a host, for the session its grant names."""
        if name in FOR_GRANTS and self._core is not None:
            return await self._answer(getattr(self._core, name), (token, *given))
        if name == "memory" and self._core is not None:
            return await self._answer(self._way_to_memory, (token,))
        # Models, with the keys they hold, are for the gateway alone; tools are for hosts.
        key = {"baggage": self._host_key, "model": self._gateway_key}.get(name)
        if key is not None and _is_same(token, key):
            return await self._answer(self._of_baggage, (name, *given))
        if name in FOR_MEMORY and _is_same(token, self._memory_key):
            return await self._answer(self._of_memory, (name, *given))
        reason = f"asked the supervisor to {name!r} without a grant for it"
        return RpcResponse(self.incarnation, None, PermissionDenied(PermissionTier.ELEVATED, reason))

    async def _answer(self, function: Callable[..., Any], given: tuple[Any, ...]) -> RpcResponse:
        try:
            value = function(*given)
            if asyncio.iscoroutine(value):
                value = await value
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            return RpcResponse(self.incarnation, None, portable(error))
        return RpcResponse(self.incarnation, value)

    def _of_owner(self, name: str, given: tuple[Any, ...]) -> Any:
        own: Mapping[str, Callable[..., Any]] = {
            "open": self._open,
            "create": self._create,
            "resume": self._resume,
            "release": self._release,
            "watch": self._watch,
            "unwatch": self._unwatch,
            "progress": self._progress,
            "offered": self._offered,
            "close": self._close,
        }
        if name in own:
            return own[name](*given)
        if name not in FOR_OWNER or self._owner is None:
            raise SessionTreeError(f"this supervisor can't {name!r}: it is not open, or knows no such thing")
        return getattr(self._owner, name)(*given)

    async def _open(self) -> int:
        """Open the journal and start what is to be warm; returns the id of this process.

        Raises:
            JournalError: the state directory can't be used.
        """
        async with self._opening:
            if self._core is None:
                self._begin(await self._journal())
        return os.getpid()

    async def _journal(self) -> Journal:
        """Open the journal; a writer whose program was killed is given the time to end."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ORPHAN_S
        while True:
            try:
                return Journal.open(settings.journal_dir, program_pid=settings.program_pid)
            except JournalLocked:
                if not JournalPlace(settings.journal_dir).is_orphaned or loop.time() > deadline:
                    raise
            await asyncio.sleep(ORPHAN_RETRY_S)

    def _begin(self, journal: Journal) -> None:
        journal.start(asyncio.get_running_loop())
        pool = self._settings.pool
        gateway = GatewayLink(self._start_gateway, self._hub, self._model_of, resend_after_s=RESEND_AFTER_S)
        self._core = SupervisorCore(
            journal,
            self._start_host,
            pools={ACTING: pool, OBSERVING: pool},
            pool_of=pool_of,
            gateway=gateway,
            memory=self._memory,
            hub=self._hub,
            clock=self._clock,
            resend_after_s=RESEND_AFTER_S,
            most_losses=MOST_LOSSES,
        )
        self._owner = Owner(self._core, self._security)
        self._beside = self._stand_beside(self._owner)
        self._beside.start()
        for _ in range(self._settings.warm):
            for name in (ACTING, OBSERVING):
                self._core.scheduler.warm(name)

    @property
    def host_key(self) -> str:
        """What hosts show for a tree's tools."""
        return self._host_key

    @property
    def gateway_key(self) -> str:
        """What the gateway shows for a tree's model."""
        return self._gateway_key

    @property
    def memory_key(self) -> str:
        """What memory shows, and what it is told things with."""
        return self._memory_key

    def _opened(self) -> tuple[SupervisorCore, Owner]:
        if self._core is None or self._owner is None:
            raise SessionTreeError("the supervisor is not open yet")
        return self._core, self._owner

    async def _create(
        self, config: TreeConfig, agents: Mapping[str, AgentConfig], baggage: Baggage, again: bool = False
    ) -> None:
        """Create a tree; asked ``again``, take up the one that was created, if it was."""
        core, owner = self._opened()
        if again and any(row.tree_id == config.tree_id for row in core.journal.trees()):
            await self._resume(config.tree_id, agents, baggage, again)
            return
        self._baggage[config.tree_id] = baggage
        try:
            await owner.create(config, agents)
        except BaseException:
            self._release(config.tree_id)
            raise

    async def _resume(
        self, tree_id: str, agents: Mapping[str, AgentConfig], baggage: Baggage, again: bool = False
    ) -> None:
        """Take up a tree; asked ``again``, one that is open was taken up then."""
        _, owner = self._opened()
        was_open = owner.is_open(tree_id)
        if again and was_open:
            return
        if not was_open:
            self._baggage[tree_id] = baggage
        try:
            await owner.resume(tree_id, agents)
        except BaseException:
            if not was_open:
                self._release(tree_id)
            raise

    def _release(self, tree_id: str) -> None:
        _, owner = self._opened()
        owner.release(tree_id)
        self._baggage.pop(tree_id, None)

    def _model_of(self, tree_id: str) -> str | None:
        baggage = self._baggage.get(tree_id)
        core, _ = self._opened()
        return None if baggage is None or baggage.for_gateway is None else core.tree(tree_id).equipment

    def _of_baggage(self, name: str, equipment: str) -> bytes:
        tree_id = equipment.partition("#")[0]
        core, _ = self._opened()
        baggage = self._baggage.get(tree_id)
        if baggage is None or core.tree(tree_id).equipment != equipment:
            raise TreeNotFound(tree_id, "is not open here any more")
        packed = baggage.for_hosts if name == "baggage" else baggage.for_gateway
        if packed is None:
            raise TreeNotFound(tree_id, "has no model that waits")
        return packed

    def _way_to_memory(self, token: str) -> Any:
        core, _ = self._opened()
        core.grants.check(token, "recall")
        return self._memory.way()

    async def _of_memory(self, name: str, *given: Any) -> Any:
        core, _ = self._opened()
        if name == "begun":
            return self._memory.begun(*given)
        if name == "ended_of":
            return await core.ended_of(*given)
        return await self._whose(core, *given)

    async def _whose(self, core: SupervisorCore, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        return self._memory.told(wanted, await core.whose(wanted))

    def _watch(self, tree_id: str, session: str | None) -> str:
        core, _ = self._opened()
        core.tree(tree_id).watch(+1)
        name = secrets.token_hex(8)
        self._readers[name] = self._hub.watch(tree_id, session)
        return name

    def _unwatch(self, name: str) -> None:
        reader = self._readers.pop(name, None)
        if reader is not None:
            reader.close()
            core, owner = self._opened()
            if owner.is_open(reader.tree_id):
                core.tree(reader.tree_id).watch(-1)

    async def _progress(self, name: str, wait_s: float) -> tuple[tuple[Progress, ...], int]:
        """Return what a reader holds, waiting for the first, and how many it has dropped so far."""
        reader = self._reader(name)
        try:
            async with asyncio.timeout(wait_s):
                first = await reader.next()
        except TimeoutError:
            return (), reader.dropped
        return (first, *reader.drain()), reader.dropped

    def _offered(self, name: str) -> int:
        """Return how many events a reader was offered so far."""
        return self._reader(name).offered

    def _reader(self, name: str) -> ProgressReader:
        reader = self._readers.get(name)
        if reader is None:
            raise SessionTreeError("this watch is over: the supervisor was restarted since, or it was closed")
        return reader

    async def _close(self) -> None:
        """End hosts and gateway, and let the journal go."""
        if self._core is not None:
            core, self._core, self._owner = self._core, None, None
            await core.close()
            if self._beside is not None:
                await self._beside.close()
            await core.journal.close()


def _is_same(shown: object, own: str) -> bool:
    """Whether somebody shows the right key, in the same time whatever is shown."""
    return isinstance(shown, str) and hmac.compare_digest(shown.encode("utf-8", "replace"), own.encode())
