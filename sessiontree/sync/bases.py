"""The base classes of the generated sync classes: they hold the object on the loop.

Opening, closing, sending and streaming differ from the async classes and are written here; everything else is
generated (``.ci/generate_sync.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self

from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.stimuli import SendMode
from sessiontree.contracts.recorded.results import R
from sessiontree.contracts.recorded.senders import Sender
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.sync.bridge import LoopBridge
from sessiontree.sync.channels import BridgedChannel
from sessiontree.sync.event_buffer import Pump
from sessiontree.sync.portal import PORTAL

if TYPE_CHECKING:
    from sessiontree.api.runtime import runtime
    from sessiontree.api.tree import pending_reply, session_handle, session_tree


@dataclass(frozen=True, slots=True)
class BridgedObject:
    """An object on the loop, with the crossing to it."""

    _crossing: LoopBridge
    _inner: Any


class PendingReply:
    """A reply under way: iterate for pieces of its text, or call :meth:`result` for the whole."""

    def __init__(self, crossing: LoopBridge, pending: pending_reply.PendingReply, pieces: Pump[str]) -> None:
        self._crossing = crossing
        self._pending = pending
        self._pieces = pieces

    def result(self) -> str:
        """Wait for the final text and return it; may be called again, also after an interrupt.

        Raises:
            SessionFailed: the reply will not come; ``cause`` says why, such as ``interrupted``.
            SessionClosed: the session ended first.
        """
        text: str = self._crossing.wait(_await_reply, self._pending)
        return text

    def interrupt(self, reason: str) -> None:
        """Interrupt the turn of the session that writes the reply; nothing if the reply is there.

        Args:
            reason: What the journal and the session's transcript say.
        """
        self._crossing.wait(self._pending.interrupt, reason)

    def __iter__(self) -> Iterator[str]:
        """Yield pieces of the reply's text as they arrive; ends when the final text is there.

        Begins with the first piece after the message was sent. A second iteration continues where the first
        stopped.

        Raises:
            SessionFailed, SessionClosed: as :meth:`result`.
        """
        while piece := self._crossing.wait(self._pieces.take, 1):
            yield piece[0]


class SessionBase(Generic[R]):
    """A session's handle on the loop, with sending and streaming."""

    def __init__(self, crossing: LoopBridge, inner: session_handle.SessionHandle) -> None:
        self.session_id = inner.session_id
        self._crossing = crossing
        self._inner = inner

    def __repr__(self) -> str:
        """Name tree and session."""
        return repr(self._inner)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Mapping[str, Any]:
        """Return the session for a notebook's cell, as its twin does."""
        return self._inner._repr_mimebundle_(include, exclude)

    def send(
        self,
        text: str,
        mode: SendMode = "follow_up",
        *,
        sender: Sender | str | None = None,
        settings: ModelSettings | None = None,
        images: Sequence[ImageContent] = (),
        message_id: str | None = None,
    ) -> str:
        """Send a message to the session and return its reply.

        An interrupt ends the wait; the message was sent, and its reply will be in the history.

        Args:
            text: The message.
            mode: ``follow_up`` waits for the end of the turn; ``steer`` stops running tools and forces the
                next turn.
            sender: As for :meth:`sessiontree.SessionHandle.send`.
            settings: As for :meth:`sessiontree.SessionHandle.send`.
            images: As for :meth:`sessiontree.SessionHandle.send`.
            message_id: As for :meth:`sessiontree.SessionHandle.send`.

        Raises:
            SessionFailed: the reply will not come; ``cause`` says why, such as ``interrupted``.
            SessionClosed: the session ended first.
            ConfigError: the text is empty, the mode is unknown, or the sender or an image is not one.
        """
        reply: str = self._crossing.wait(self._send, text, mode, sender, settings, images, message_id)
        return reply

    async def _send(
        self,
        text: str,
        mode: SendMode,
        sender: Sender | str | None,
        settings: ModelSettings | None,
        images: Sequence[ImageContent],
        message_id: str | None,
    ) -> str:
        return await self._inner.send(
            text, mode, sender=sender, settings=settings, images=images, message_id=message_id
        )

    def stream(
        self,
        text: str,
        mode: SendMode = "follow_up",
        *,
        sender: Sender | str | None = None,
        settings: ModelSettings | None = None,
        images: Sequence[ImageContent] = (),
        message_id: str | None = None,
    ) -> PendingReply:
        """Send a message to the session, and continue while it answers.

        Args:
            text: The message.
            mode: As for :meth:`send`.
            sender: As for :meth:`send`.
            settings: As for :meth:`send`.
            images: As for :meth:`send`.
            message_id: As for :meth:`send`.

        Returns:
            The pending reply: iterate over its pieces, or ask for its :meth:`~PendingReply.result`.

        Raises:
            ConfigError: the text is empty, the mode is unknown, or the sender or an image is not one.
        """
        reply: PendingReply = self._crossing.run(
            self._stream, text, mode, sender, settings, images, message_id
        )
        return reply

    def _stream(
        self,
        text: str,
        mode: SendMode,
        sender: Sender | str | None,
        settings: ModelSettings | None,
        images: Sequence[ImageContent],
        message_id: str | None,
    ) -> PendingReply:
        # Both in one step of the loop: no piece can arrive before the pump listens.
        pending = self._inner.send(
            text, mode, sender=sender, settings=settings, images=images, message_id=message_id
        )
        return PendingReply(self._crossing, pending, Pump(self._crossing, pending.__aiter__()))


class RuntimeBase:
    """A runtime on the loop, opened and closed from a thread."""

    state_dir: Path
    """The state directory."""
    journal_dir: Path
    """The directory of the journal: the state directory, or a directory below it."""

    def _begin(self, open_runtime: Callable[[], runtime.Runtime]) -> None:
        self._crossing = LoopBridge()
        self._runtime: runtime.Runtime | None = None
        # Before the runtime is opened: an interrupt during the opening then finds a lease, and closes what
        # there is.
        self._crossing.open(self._end)
        try:
            self._crossing.run(self._open, open_runtime)
        except BaseException:
            self.close()
            raise

    def _open(self, open_runtime: Callable[[], runtime.Runtime]) -> None:
        self._runtime = open_runtime()
        self.state_dir = self._runtime.state_dir
        self.journal_dir = self._runtime.journal_dir

    async def _end(self) -> None:
        if self._runtime is not None:
            await self._runtime.close()

    @property
    def on_loop(self) -> runtime.Runtime:
        """The runtime itself, which belongs to the loop of the sync trees."""
        assert self._runtime is not None  # noqa: S101 - the constructor opened it
        return self._runtime

    def close(self) -> None:
        """End hosts and supervisor; trees stay in the journal and can be resumed."""
        self._crossing.close()

    def __enter__(self) -> Self:
        """Return the runtime."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def get_loop_runtime(given: RuntimeBase | None) -> runtime.Runtime | None:
    """Return the runtime on the loop.

    Raises:
        ConfigError: it belongs to another loop.
    """
    if given is not None and not isinstance(given, RuntimeBase):
        raise ConfigError(
            f"can't use runtime {given!r}: it is of another event loop; give a sessiontree.sync.Runtime"
        )
    return None if given is None else given.on_loop


class TreeBase:
    """A tree on the loop, opened and closed from a thread."""

    _tree: session_tree.SessionTree | None

    def _hold(self, crossing: LoopBridge, tree: session_tree.SessionTree) -> None:
        self._crossing = crossing
        self._tree = tree
        tree._set_holder(self, self._close_on_loop)  # noqa: SLF001 - its twin

    async def _close_on_loop(self) -> None:
        """Close from the loop: calls that wait in the tree end, and its lease is released."""
        # In a thread, because closing waits for the loop, and this runs on it.
        await asyncio.to_thread(self.close)

    @property
    def _made(self) -> session_tree.SessionTree:
        assert self._tree is not None  # noqa: S101 - it is None only during resume
        return self._tree

    def __repr__(self) -> str:
        """Name the tree."""
        return repr(self._made)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Mapping[str, Any]:
        """Return the tree for a notebook's cell, as its twin does."""
        return self._made._repr_mimebundle_(include, exclude)

    @property
    def channel(self) -> HumanChannel | None:
        """The channel on which Main talks to a person."""
        channel = self._made.channel
        return channel.given if isinstance(channel, BridgedChannel) else channel

    def start(self) -> Self:
        """Create the tree; durable when this returns.

        Raises:
            ConfigError: it is open, or was; or its workspace is in the state directory.
            JournalError: the state directory cannot be used.
        """
        is_first = self._crossing.open(self._end)
        try:
            self._crossing.run(self._made.start)
        except BaseException:
            if is_first:
                self._crossing.close()
            raise
        PORTAL.exit_first()  # at exit, close trees before the backend that the first tree loaded
        return self

    def _take_up(
        self, crossing: LoopBridge, resumed: Callable[[], Awaitable[session_tree.SessionTree]]
    ) -> None:
        self._crossing = crossing
        self._tree = None

        async def take_up() -> None:
            # Set on the loop, not by the thread that waits: an interrupt there must not lose an open tree.
            self._tree = await resumed()

        crossing.open(self._end)
        try:
            crossing.run(take_up)
        except BaseException:
            crossing.close()
            raise
        PORTAL.exit_first()

    async def _end(self) -> None:
        if self._tree is not None:
            await self._tree.close()

    def __enter__(self) -> Self:
        """Create the tree, unless it was resumed."""
        return self if self._crossing.is_open else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the tree; its sessions stay in the journal and can be resumed."""
        self.close()

    async def __aenter__(self) -> NoReturn:
        """Refuse ``async with``: this tree is used without ``await``.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "this SessionTree is used without await; write `with SessionTree(…) as tree`, or import the "
            "async class with `from sessiontree import SessionTree`"
        )

    async def __aexit__(self, *_: object) -> None:
        """Complete :meth:`__aenter__`; never called."""

    def close(self) -> None:
        """Close the tree in this process; it can be resumed. Calls that wait in it end."""
        self._crossing.close()


def run_with_own_lease(function: Callable[..., Awaitable[Any]], *given: Any, **named: Any) -> Any:
    """Run a function that needs no open tree on the loop, and return its result."""

    async def close_nothing() -> None:
        """Close nothing."""

    crossing = LoopBridge()
    crossing.open(close_nothing)
    try:
        return crossing.run(function, *given, **named)
    finally:
        crossing.close()


async def _await_reply(pending: pending_reply.PendingReply) -> str:
    return await pending
