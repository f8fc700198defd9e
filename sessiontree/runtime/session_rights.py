"""What a session's tools hold: handles by session kind, narrowed to what each tool declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Generic, ParamSpec, cast
from weakref import WeakKeyDictionary, WeakSet

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.context import SessionRights
from sessiontree.contracts.errors import SessionClosed
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.ports import (
    Channel,
    Memory,
    MemoryWriter,
    Reader,
    Sessions,
    Shell,
    Status,
    Web,
    Writer,
)

P = ParamSpec("P")
PORTS: Final[Mapping[str, type[Any]]] = {
    "status": Status,
    "reader": Reader,
    "memory": Memory,
    "web": Web,
    "writer": Writer,
    "shell": Shell,
    "channel": Channel,
    "memory_writer": MemoryWriter,
    "sessions": Sessions,
}
"""Member of a session's rights to the protocol of its handle."""
_BEHIND: Final[WeakKeyDictionary[object, Any]] = WeakKeyDictionary()


class Facades:
    """The facades of one embodied session.

    Args:
        session: Its path.
    """

    __slots__ = ("_made", "_session")

    def __init__(self, session: str) -> None:
        self._session = session
        self._made: WeakSet[object] = WeakSet()

    def rights(self, rights: SessionRights) -> SessionRights:
        """Return the same rights with a facade in place of each handle."""
        held = {name: getattr(rights, name) for name in PORTS}
        made: dict[str, Any] = {
            name: self._facade(_CLASSES[name], handle) for name, handle in held.items() if handle is not None
        }
        return replace(rights, **made)

    def writer(self, writer: Writer) -> Writer:
        """Return a facade of one more writer, for one call."""
        return cast("Writer", self._facade(_CLASSES["writer"], writer))

    def _facade(self, made: type[Facade], handle: object) -> Facade:
        facade = made(self._session)
        _BEHIND[facade] = handle
        self._made.add(facade)
        return facade

    def notice(self, told: Callable[P, None]) -> Callable[P, None]:
        """Return a function that tells another one; it tells nobody any more once the session is let go."""
        facade = Notice[P]()
        _BEHIND[facade] = told
        self._made.add(facade)
        return facade

    def close(self) -> None:
        """Let nothing stand behind them any more: whoever still holds one is refused."""
        for facade in list(self._made):
            _BEHIND.pop(facade, None)
        self._made.clear()


class Facade:
    """Offers the methods of one protocol; a class of its own for each."""

    __slots__ = ("__weakref__", "_session")

    def __init__(self, session: str) -> None:
        """Keep whose it is, to say so once nothing stands behind it."""
        self._session = session


class Notice(Generic[P]):
    """Tells something to whoever stands behind it."""

    __slots__ = ("__weakref__",)

    def __call__(self, *given: P.args, **named: P.kwargs) -> None:
        """Tell it."""
        told = _BEHIND.get(self)
        if told is not None:
            told(*given, **named)


def _facade_class(port: type[Any]) -> type[Facade]:
    """Return the class of a protocol's facades: its methods, and no place for anything else."""
    methods = {
        name: _forwarded(name, member)
        for name, member in vars(port).items()
        if isinstance(member, FunctionType) and not name.startswith("_")
    }
    return type(f"{port.__name__}Facade", (Facade,), {"__slots__": (), "__doc__": port.__doc__, **methods})


def _forwarded(name: str, declared: FunctionType) -> Callable[..., Any]:
    def forwarded(facade: Facade, *given: Any, **named: Any) -> Any:
        handle = _BEHIND.get(facade)
        if handle is None:
            raise SessionClosed(facade._session, "its host has let it go; nothing more is done for it")  # noqa: SLF001 - a method of its class
        return getattr(handle, name)(*given, **named)

    forwarded.__name__, forwarded.__doc__ = name, declared.__doc__
    return forwarded


_CLASSES: Final = {name: _facade_class(port) for name, port in PORTS.items()}


@dataclass(frozen=True, slots=True)
class Handles:
    """Everything a host could hand out; ``build_rights`` picks what a kind may hold."""

    reader: Reader
    writer: Writer
    shell: Shell
    channel: Channel | None
    """None where no session at or above this one has one."""
    sessions: Sessions
    status: Status
    memory: Memory
    memory_writer: MemoryWriter
    web: Web | None
    """None where the owner of the tree allows none."""


def build_rights(
    session_id: str,
    kind: SessionKind,
    workspace: Path,
    config: AgentConfig,
    handles: Handles,
    tree_id: str = "",
) -> SessionRights:
    """Return the rights of one session. A Worker gets nothing that could change anything.

    Nobody gets a writer whose agent, or any session above it, has the workspace read-only.
    """
    observing = SessionRights(
        session_id=session_id,
        agent_id=config.agent_id,
        kind=kind,
        workspace_root=workspace,
        config=config,
        status=handles.status,
        reader=handles.reader,
        web=handles.web,
        memory=handles.memory,
        tree_id=tree_id,
    )
    if kind is SessionKind.WORKER:
        return observing
    return SessionRights(
        session_id=session_id,
        agent_id=config.agent_id,
        kind=kind,
        workspace_root=workspace,
        config=config,
        status=handles.status,
        reader=handles.reader,
        web=handles.web,
        memory=handles.memory,
        memory_writer=handles.memory_writer,
        writer=handles.writer if config.workspace_access == "rw" else None,
        shell=handles.shell,
        channel=handles.channel,
        sessions=handles.sessions,
        tree_id=tree_id,
    )
