"""Facades offer the methods of their protocols, lead nowhere, and are empty once the session is let go."""

from __future__ import annotations

import gc
import inspect
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError, SessionClosed
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.capabilities import CAPABILITIES
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import CallSignals, SessionRights, ToolContext
from sessiontree.runtime.rights.session_rights import PORTS, Facades
from sessiontree.testing.context import (
    FixedStatus,
    RecordingChannel,
    RecordingSessions,
    RecordingSubtree,
    fresh_report,
)
from sessiontree.workspace import WorkspaceReader, WorkspaceWriter
from tests.behaviour.object_graph_oracle import handles, insides, reachable


def bare(root: Path) -> SessionRights:
    """Return the rights of a Main as they are behind the facades."""
    return SessionRights(
        "main",
        "default",
        SessionKind.MAIN,
        root,
        AgentConfig(),
        FixedStatus(fresh_report(SessionKind.MAIN)),
        reader=WorkspaceReader(root),
        writer=WorkspaceWriter(root),
        channel=RecordingChannel(),
        sessions=RecordingSessions(),
        subtree=RecordingSubtree(),
    )


def test_facade_offers_its_protocol_and_nothing_else(tmp_path: Path) -> None:
    """Each method, by its name and with its text; no attribute can be read or set next to them."""
    rights = Facades("main").rights(bare(tmp_path))
    for name, port in PORTS.items():
        facade = getattr(rights, name)
        if facade is None:
            continue
        offered = {each for each, _ in inspect.getmembers(type(facade)) if not each.startswith("_")}
        assert offered == {each for each in vars(port) if not each.startswith("_")}
        assert all(getattr(facade, each).__doc__ for each in offered)
        assert not hasattr(facade, "__dict__")
        with pytest.raises(AttributeError):
            facade.write = None
    given = {"reader", "writer", "channel", "sessions", "subtree"}
    assert {name for name in CAPABILITIES if getattr(rights, name) is None} == set(CAPABILITIES) - given


async def test_facade_does_what_stands_behind_it(tmp_path: Path) -> None:
    """Values, keywords, coroutines, generators and errors pass unchanged."""
    given = bare(tmp_path)
    rights = Facades("main").rights(given)
    assert rights.writer is not None
    assert rights.reader is not None
    assert rights.channel is not None
    written = rights.writer.write("a.txt", b"one")
    assert (written.path, written.created) == ("a.txt", True)
    mtime_ns = rights.reader.stat("a.txt").mtime_ns
    assert not rights.writer.write("a.txt", b"two", expect_mtime_ns=mtime_ns).created
    with pytest.raises(ExecutionError, match="it changed since it was read"):
        rights.writer.write("a.txt", b"two", expect_mtime_ns=1)
    with rights.reader.open("a.txt") as stream:
        assert stream.read() == b"two"
    assert [entry.path for entry in rights.reader.walk()] == ["a.txt"]
    await rights.channel.send("hello")
    assert isinstance(given.channel, RecordingChannel)
    assert given.channel.sent == ["hello"]


async def test_let_go_nothing_stands_behind_a_facade(tmp_path: Path) -> None:
    """Whoever kept one is refused by a typed error; progress goes nowhere; nothing is kept alive."""
    told: list[str] = []

    class Marked(RecordingChannel):
        """A channel that can be watched going."""

        __slots__ = ("__weakref__",)

    channel = Marked()
    gone = weakref.ref(channel)
    facades = Facades("main/b1")
    rights = facades.rights(replace(bare(tmp_path), channel=channel))
    notice = facades.notice(told.append)
    notice("once")
    facades.close()
    notice("twice")
    assert told == ["once"]
    assert rights.writer is not None
    assert rights.channel is not None
    for use in (lambda: rights.writer.write("a", b""), lambda: rights.channel.send("hello")):
        with pytest.raises(SessionClosed, match="'main/b1': its host has let it go"):
            use()
    assert not (tmp_path / "a").exists()
    del channel
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", ["writer", "channel", "sessions", "subtree"])
def test_handle_without_a_facade_is_found(tmp_path: Path, name: str) -> None:
    """The walk that proves rights narrow finds a bare handle, wherever it hangs."""
    sealed = Facades("main").rights(bare(tmp_path)).narrowed("look", {"reader"})
    assert set(handles(reachable(ToolContext(sealed, "c", CallSignals(0.0))))) == {"reader", "status"}
    handle = getattr(bare(tmp_path), name)

    def behind() -> object:
        return handle

    signals = CallSignals(0.0)
    signals.on_update = behind  # type: ignore[assignment]
    found = reachable(ToolContext(sealed, "c", signals))
    assert set(handles(found)) == {"reader", "status", name}
    assert bool(insides(found)) is (name == "writer"), "the channel and sessions are doubles"
