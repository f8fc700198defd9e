"""Channels of sync trees: questions to people are asked on blocked threads, everything else on the loop."""

from __future__ import annotations

import io
import queue
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from inspect import iscoroutinefunction
from typing import Any, TextIO, TypeAlias, TypeVar, cast

from sessiontree.api.options.options import ApproverLike, ChannelLike, get_channel_members
from sessiontree.channels import terminal
from sessiontree.channels.port import HumanChannel
from sessiontree.channels.program_channels import Approver, CallbackChannel
from sessiontree.contracts.kinds import SystemAnswer
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.settings.settings import MessagePolicy
from sessiontree.sync.bridge import Prompts

T = TypeVar("T")
Asking: TypeAlias = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer | None]]


class QueueChannel:
    """Messages wait in ``messages``, a queue for threads; requests wait in the tree for an answer."""

    leaves_requests = True
    """As for the channel of the async classes."""

    def __init__(
        self,
        owners: Sequence[str] = (),
        system_tier: SystemAnswer = "allow",
        message_policy: MessagePolicy | None = None,
    ) -> None:
        """Begin without messages.

        Args:
            owners: Ids of the senders who own the tree, if the channel has several users.
            system_tier: What happens to System calls in trees whose Main has this channel.
            message_policy: Limits on messages of those trees' Branches.
        """
        self.owners = owners
        self.system_tier = system_tier
        self.message_policy = message_policy
        self.messages: queue.SimpleQueue[str] = queue.SimpleQueue()

    async def send(self, text: str) -> None:
        """Keep the ``text`` of a message."""
        self.messages.put(text)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Leave the request pending."""
        return None


class Console(io.TextIOBase):
    """The current standard output, and ``input()``, which notebooks and debuggers replace."""

    def write(self, text: str) -> int:
        """Print."""
        return sys.stdout.write(text)

    def flush(self) -> None:
        """Show what was printed."""
        sys.stdout.flush()

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # text, as its type says
        """Return a line with its end; empty at the end of input."""
        try:
            return input() + "\n"
        except EOFError:
            return ""


class TerminalChannel(terminal.TerminalChannel):
    """Asks one request at a time on a blocked thread; the end of input means no.

    Args:
        reads: The stream of answers; None = ``input()``, which works in a notebook's cell.
        writes: The stream for messages and questions; None = standard output.
    """

    def __init__(self, reads: TextIO | None = None, writes: TextIO | None = None) -> None:
        """Keep the streams."""
        console = cast(TextIO, Console())
        super().__init__(reads or console, writes or console)
        self._mine = threading.RLock()
        self._question: TerminalQuestion | None = None

    def put(self, question: TerminalQuestion) -> ApprovalAnswer | None:
        """Show ``question`` and wait for a valid answer on this thread; None = it was withdrawn meanwhile."""
        # A question may lead to another one on the same thread, so the lock can be taken twice there.
        with self._mine:
            self._question = question
            try:
                return _run_at_once(self.ask(question.request))
            except WithdrawnError:
                return None

    def withdraw(self) -> None:
        """Show that the question on the screen was withdrawn; its thread still waits for a line."""
        self._writes.write("\n(the question was withdrawn; press Enter)\n")
        self._writes.flush()

    async def _read_line(self) -> str:
        line = self._reads.readline()
        # A line can't be taken back from `input()`, so what was typed for a withdrawn question is dropped.
        if self._question is not None and self._question.is_withdrawn:
            raise WithdrawnError
        return line


class WithdrawnError(Exception):
    """The question for which the line was read was withdrawn."""


class TerminalQuestion:
    """One request at a terminal."""

    def __init__(self, channel: TerminalChannel, request: ApprovalRequest) -> None:
        """Bind both."""
        self._channel = channel
        self.request = request
        self.is_withdrawn = False

    def put(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Ask it on this thread."""
        return self._channel.put(self)

    def withdraw(self) -> None:
        """Withdraw it, and show that on the screen."""
        self.is_withdrawn = True
        self._channel.withdraw()


class BridgedChannel:
    """The program's channel, with questions asked on blocked threads.

    Args:
        given: The program's channel.
        asking: Asks a request.
    """

    def __init__(self, given: HumanChannel, asking: Asking) -> None:
        self.given = given
        members = get_channel_members(given)
        self.tools = members.get("tools", ())
        self.name = getattr(given, "name", "")
        self.owners = members.get("owners", ())
        self.system_tier = members.get("system_tier", "allow")
        self.message_policy = members.get("message_policy")
        self.show = members.get("show")
        self.show_below = members.get("show_below")
        self._asking = asking

    async def send(self, text: str) -> None:
        """Deliver a message, on the loop."""
        await self.given.send(text)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Ask the request."""
        return await self._asking(request)


def wrap_channel(channel: HumanChannel, prompts: Prompts) -> HumanChannel:
    """Return a channel that asks on blocked threads, for callbacks and terminals; else the channel itself."""
    if isinstance(channel, terminal.TerminalChannel):
        return BridgedChannel(channel, _ask_at_terminal(channel, prompts))
    if isinstance(channel, CallbackChannel):
        approver = channel._approver  # noqa: SLF001 - its sync twin calls the same function elsewhere
        return BridgedChannel(channel, CallbackChannel(wrap_function(approver, prompts)).ask)
    return channel


def choose_channel(channel: ChannelLike, approver: ApproverLike, prompts: Prompts) -> ChannelLike:
    """Return a tree's channel for the loop; with a callable approver, ``queue`` stays as it is."""
    if channel == "queue":
        return "queue" if callable(approver) else QueueChannel()
    return channel if channel is None or isinstance(channel, str) else wrap_channel(channel, prompts)


def _ask_at_terminal(channel: terminal.TerminalChannel, prompts: Prompts) -> Asking:
    if not isinstance(channel, TerminalChannel):
        channel = TerminalChannel(channel._reads, channel._writes)  # noqa: SLF001 - its sync twin
    here = channel

    async def ask(request: ApprovalRequest) -> ApprovalAnswer | None:
        question = TerminalQuestion(here, request)
        answer: ApprovalAnswer | None = await prompts.ask(question.put, request, question.withdraw)
        return answer

    return ask


def wrap_approver(approver: ApproverLike, prompts: Prompts) -> ApproverLike:
    """Return an approver whose plain function is called on blocked threads; others stay unchanged."""
    if approver is None or isinstance(approver, str) or not callable(approver):
        return approver
    return wrap_function(approver, prompts)


def wrap_function(approver: Approver | None, prompts: Prompts) -> Approver | None:
    """Return a function for the loop that calls another on a blocked thread; async ones stay unchanged."""
    if approver is None or iscoroutinefunction(approver) or iscoroutinefunction(type(approver).__call__):
        return approver
    function = approver

    async def ask(request: ApprovalRequest) -> Any:
        return await prompts.ask(function, request)

    return ask


def _run_at_once(asking: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait, without a loop."""
    try:
        asking.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    asking.close()
    raise RuntimeError("one thread asks two questions at a terminal at the same time")
