"""A tree of sessions for programs without ``await``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from sessiontree.api import session_tree as on_loop
from sessiontree.api.options import ApproverLike, ChannelLike, PluginsLike, PolicyLike
from sessiontree.api.runtime import BackendName
from sessiontree.api.runtime import Runtime as AsyncRuntime
from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.agent import AgentSpec
from sessiontree.contracts.approvals import ApprovalMode, Rule
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.hooks import Hook
from sessiontree.contracts.limits import Budget, Limits
from sessiontree.contracts.tool import Tool
from sessiontree.contracts.usage import Usage
from sessiontree.memory.settings import MemorySettings
from sessiontree.models.port import Model
from sessiontree.sync.approvals import Approvals
from sessiontree.sync.blocking_bridge import Crossing
from sessiontree.sync.channels import CrossedChannel, QueueChannel, crossed_approver, crossed_channel
from sessiontree.sync.client_calls import ClientCalls
from sessiontree.sync.event_buffer import ProgressReader, Pump
from sessiontree.sync.handle import SessionHandle
from sessiontree.sync.portal import PORTAL
from sessiontree.sync.runtime import Runtime
from sessiontree.web.settings import PUBLIC_WEB, WebSettings

if TYPE_CHECKING:
    from sessiontree.journal.record import Record
    from sessiontree.tree.receipt import ReceiptLine

READ_AHEAD = 512
"""Facts that :meth:`SessionTree.events` holds before the loop waits for its reader."""


class SessionTree:
    """A tree of sessions over one workspace. Use it as a context manager, in a script or a running kernel.

    The same as :class:`sessiontree.SessionTree`, without ``await``. Any thread may use it; several may block
    in it at once. While a call waits for sessions (``send``, ``call``, ``map``, ``result``, or the next item
    of ``stream``, ``events``, ``progress``), approval requests for a plain callable or a terminal are asked
    on the thread that waits, one at a time. While none does they stay in ``approvals.pending()``.

    Args:
        workspace: Directory all file tools work beneath.
        model: What answers for its sessions.
        tools: Tools besides those of installed distributions.
        limits: Bounds of the tree.
        budget: What the whole tree may spend.
        agents: Agents by name; ``default`` is Main's, and is made where it is missing.
        approvals: ``auto`` answers yes and records it, ``smart`` lets ``smart_rules`` answer before a person
            and says yes to commands known to be harmless, ``always`` asks each time, ``never`` refuses.
        approver: Who answers for Main: rules, or a callable. A plain callable may block and may use the tree;
            an ``async`` one runs on the loop.
        smart_rules: What mode ``smart`` answers by itself.
        channel: Where Main talks to a person; by default messages and requests wait until the program looks.
            ``sessiontree.sync.TerminalChannel()`` asks by ``input()``. None = nobody can be asked. Messages
            are delivered on the loop.
        state_dir: Where the journal lies; by default in the platform's state folder, by workspace.
        backend: As for :class:`sessiontree.SessionTree`.
        slots: Most sessions embodied at a time.
        memory: As for :class:`sessiontree.SessionTree`.
        runtime: Serve the tree there instead of starting a private runtime; a ``sessiontree.sync.Runtime``.
        purpose: What listings say the tree was for.
        dedicated: Whether each session keeps a host of its own for life, never giving way to others.
        builtin_tools: False leaves out the tools of installed distributions.
        plugins: As for :class:`sessiontree.SessionTree`.
        web: As for :class:`sessiontree.SessionTree`.
        policy: As for :class:`sessiontree.SessionTree`.
        group: As for :class:`sessiontree.SessionTree`.
        hooks: As for :class:`sessiontree.SessionTree`; they run on the loop or in threads of their own.
    """

    def __init__(  # noqa: PLR0913 - keyword-only settings of the public API
        self,
        workspace: str | Path,
        *,
        model: Model,
        tools: Iterable[Tool[Any]] = (),
        limits: Limits | None = None,
        budget: Budget | None = None,
        agents: Mapping[str, AgentSpec] | None = None,
        approvals: ApprovalMode = "always",
        approver: ApproverLike = None,
        smart_rules: Sequence[Rule] = (),
        channel: ChannelLike = "queue",
        state_dir: str | Path | None = None,
        backend: BackendName = "ray",
        slots: int | None = None,
        memory: MemorySettings | None = None,
        runtime: Runtime | None = None,
        purpose: str = "",
        dedicated: bool = False,
        builtin_tools: bool = True,
        plugins: PluginsLike = None,
        web: WebSettings | None = PUBLIC_WEB,
        policy: PolicyLike = None,
        group: str = "",
        hooks: Iterable[Hook] = (),
    ) -> None:
        """Check everything that can be checked before anything is started.

        Raises:
            ConfigError: an argument is wrong; says which.
        """
        crossing = self._crossing = Crossing()
        self._tree: on_loop.SessionTree | None = on_loop.SessionTree(
            workspace,
            model=model,
            tools=tools,
            limits=limits,
            budget=budget,
            agents=agents,
            approvals=approvals,
            approver=crossed_approver(approver, crossing.prompts),
            smart_rules=smart_rules,
            channel=_crossed(channel, approver, crossing),
            state_dir=state_dir,
            backend=backend,
            slots=slots,
            memory=memory,
            runtime=_on_loop(runtime),
            purpose=purpose,
            dedicated=dedicated,
            builtin_tools=builtin_tools,
            plugins=plugins,
            web=web,
            policy=policy,
            group=group,
            hooks=hooks,
        )
        self._tree._belong_to(self, self._closed)  # noqa: SLF001 - its twin

    async def _closed(self) -> None:
        """Close from the loop: calls that wait in the tree end, and its lease is given back."""
        await asyncio.to_thread(self.close)

    @property
    def _made(self) -> on_loop.SessionTree:
        assert self._tree is not None  # noqa: S101 - it is None only within resume, before anybody has it
        return self._tree

    @property
    def tree_id(self) -> str:
        """The tree's id, unguessable."""
        return self._made.tree_id

    @property
    def state_dir(self) -> Path:
        """Where the journal lies."""
        return self._made.state_dir

    @property
    def channel(self) -> HumanChannel | None:
        """Where Main talks to a person."""
        channel = self._made.channel
        return channel.given if isinstance(channel, CrossedChannel) else channel

    def start(self) -> Self:
        """Create the tree; durable when this returns.

        Raises:
            ConfigError: it is open, or was.
            JournalError: the state directory can't be used.
        """
        is_first = self._crossing.open(self._end)
        try:
            self._crossing.run(self._made.start)
        except BaseException:
            if is_first:
                self._crossing.close()
            raise
        PORTAL.exit_first()  # before the backend, which has come with the first tree
        return self

    @classmethod
    def resume(  # noqa: PLR0913 - keyword-only settings of the public API
        cls,
        tree_id: str,
        *,
        model: Model,
        tools: Iterable[Tool[Any]] = (),
        state_dir: str | Path | None = None,
        approver: ApproverLike = None,
        channel: ChannelLike = "queue",
        agents: Mapping[str, AgentSpec] | None = None,
        backend: BackendName = "ray",
        slots: int | None = None,
        memory: MemorySettings | None = None,
        runtime: Runtime | None = None,
        builtin_tools: bool = True,
        plugins: PluginsLike = None,
        web: WebSettings | None = PUBLIC_WEB,
        hooks: Iterable[Hook] = (),
    ) -> SessionTree:
        """Take up a tree after a crash, or tomorrow: facts are replayed, owed work is done, nothing twice.

        Limits, rights, mode and rules are the journal's; tools, model, web and hooks are given again. Tools
        of the tree that are not given are gone; new ones are not added. Without ``state_dir`` the tree is
        looked for where trees over the working directory are kept.

        Raises:
            TreeNotFound, JournalError: the tree can't be read.
        """
        crossing = Crossing()
        resumed = partial(
            on_loop.SessionTree.resume,
            tree_id,
            model=model,
            tools=tools,
            state_dir=state_dir,
            approver=crossed_approver(approver, crossing.prompts),
            channel=_crossed(channel, approver, crossing),
            agents=agents,
            backend=backend,
            slots=slots,
            memory=memory,
            runtime=_on_loop(runtime),
            builtin_tools=builtin_tools,
            plugins=plugins,
            web=web,
            hooks=hooks,
        )
        tree = cls.__new__(cls)
        tree._take_up(crossing, resumed)  # noqa: SLF001 - a tree of this class
        return tree

    def _take_up(self, crossing: Crossing, resumed: Callable[[], Awaitable[on_loop.SessionTree]]) -> None:
        self._crossing = crossing
        self._tree = None

        async def take_up() -> None:
            # Bound on the loop, not where it is waited for: an interrupt there must not lose an open tree.
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
        """Close the tree; what lives stays in the journal and can be resumed."""
        self.close()

    async def __aenter__(self) -> NoReturn:
        """Say what to write: this tree is used without ``await``.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "write `with SessionTree(…) as tree`; with await: from sessiontree import SessionTree"
        )

    async def __aexit__(self, *_: object) -> None:
        """Stand beside :meth:`__aenter__`; never called."""

    def close(self) -> None:
        """Let the tree go in this process; it can be resumed. Calls that wait in it end."""
        self._crossing.close()

    @property
    def main(self) -> SessionHandle:
        """The session that talks to the person."""
        return self.session("main")

    def session(self, session_id: str) -> SessionHandle:
        """Return a handle of any session of the tree, by its path."""
        return SessionHandle(self._crossing, self._crossing.run(self._made.session, session_id))

    @property
    def approvals(self) -> Approvals:
        """Requests that wait for a person."""
        return Approvals(self._crossing.run(lambda: self._made.approvals), self._crossing)

    @property
    def client_calls(self) -> ClientCalls:
        """Calls of client tools that wait for the program."""
        return ClientCalls(self._crossing.run(lambda: self._made.client_calls), self._crossing)

    def events(self, *, after: int = 0) -> Iterator[Record]:
        """Yield the tree's durable facts in order, then wait for more; ends when Main has ended.

        Args:
            after: Number of the last fact known already.
        """
        pump: Pump[Record] = self._crossing.run(
            lambda: Pump(self._crossing, self._made.events(after=after), READ_AHEAD)
        )
        try:
            while records := self._crossing.wait(pump.take, READ_AHEAD):
                yield from records
        finally:
            pump.close()

    def progress(self, session_id: str | None = None) -> ProgressReader:
        """Return a reader of what is not journaled: deltas, calls beginning and ending, progress of tools."""
        return ProgressReader(self._crossing, self._crossing.run(self._made.progress, session_id))

    def cancel(self, reason: str = "cancelled by the program") -> tuple[ReceiptLine, ...]:
        """End the whole tree.

        Returns:
            The receipt: every session and how it ended.
        """
        receipt: tuple[ReceiptLine, ...] = self._crossing.run(self._made.cancel, reason)
        return receipt

    def finish(self, summary: str) -> tuple[ReceiptLine, ...]:
        """End the tree as completed, with Main's last word; children that still live are cancelled first.

        Raises:
            ConfigError: the last word is no text.
        """
        receipt: tuple[ReceiptLine, ...] = self._crossing.run(self._made.finish, summary)
        return receipt

    def receipt(self) -> tuple[ReceiptLine, ...]:
        """Return every session of the tree and how it stands."""
        receipt: tuple[ReceiptLine, ...] = self._crossing.run(self._made.receipt)
        return receipt

    def usage(self) -> Usage:
        """Return what all sessions of the tree have used so far, those that have ended included."""
        usage: Usage = self._crossing.run(self._made.usage)
        return usage


def _crossed(channel: ChannelLike, approver: ApproverLike, crossing: Crossing) -> ChannelLike:
    """Return the channel for the loop; beside a callable approver, "queue" stays the word it is."""
    if channel == "queue":
        return "queue" if callable(approver) else QueueChannel()
    return (
        channel if channel is None or isinstance(channel, str) else crossed_channel(channel, crossing.prompts)
    )


def _on_loop(runtime: Runtime | None) -> AsyncRuntime | None:
    if runtime is not None and not isinstance(runtime, Runtime):
        raise ConfigError(
            f"runtime {runtime!r}: give a sessiontree.sync.Runtime; others have loops of their own"
        )
    return None if runtime is None else runtime.on_loop
