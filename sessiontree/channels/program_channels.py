"""Channels for programs: one calls functions, the other keeps messages and requests until they are read."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import SystemAnswer
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.questions import AnswerGiven, QuestionReply, QuestionRequest, reply_from
from sessiontree.contracts.settings.settings import MessagePolicy

AnswerLike: TypeAlias = ApprovalAnswer | bool | None
"""What an approver returns: an answer, True or False for one without a reason, or None to leave the request
pending."""
Answerer: TypeAlias = Callable[
    [QuestionRequest], "QuestionReply | Sequence[AnswerGiven] | Awaitable[Any] | None"
]
"""A function, plain or async, that answers questions of ``ask_user``; None leaves them pending."""
Approver: TypeAlias = Callable[[ApprovalRequest], AnswerLike | Awaitable[AnswerLike]]
"""A function, plain or async, that answers a request for approval."""
Listener: TypeAlias = Callable[[str], Awaitable[None] | None]
"""A function, plain or async, that receives the text of a message."""
DisplayListener: TypeAlias = Callable[[str, str], Awaitable[None] | None]
"""A function, plain or async, that receives a tool's name and the line to display."""
BelowListener: TypeAlias = Callable[[str, str, str], Awaitable[None] | None]
"""A function, plain or async, that receives the path of a session below, a tool's name and the line."""


class CallbackChannel:
    """Messages and requests go to functions, plain or async; they run on the event loop and must not block.

    Args:
        approver: Receives each request; returns an ApprovalAnswer, True, False, or None to leave it pending.
        listener: Receives each message.
        owners: Ids of the senders who own the tree, if the channel has several users.
        system_tier: What happens to System calls in trees whose Main has this channel.
        message_policy: Limits on messages of those trees' Branches.
        show: Receives a tool's name and the display line that it gave with its result.
        answerer: Receives each question for a person; returns a QuestionReply, a text, a sequence with an
            answer for each of its items, or None to leave it pending.
        show_below: Receives the lines of sessions below, each with the session's path; None = they are not
            shown.
    """

    def __init__(  # noqa: PLR0913 - each is a function or a setting, given by name
        self,
        approver: Approver | None = None,
        listener: Listener | None = None,
        owners: Sequence[str] = (),
        system_tier: SystemAnswer = "allow",
        message_policy: MessagePolicy | None = None,
        show: DisplayListener | None = None,
        answerer: Answerer | None = None,
        show_below: BelowListener | None = None,
    ) -> None:
        self.owners = owners
        self.system_tier = system_tier
        self.message_policy = message_policy
        self.show = show
        self.show_below = show_below
        self._approver = approver
        self._listener = listener
        self._answerer = answerer

    @property
    def hears(self) -> bool:
        """Whether it accepts messages; messages to a channel without a listener go to the one above it."""
        return self._listener is not None

    @property
    def asks(self) -> bool:
        """Whether it answers questions; those of a channel without an answerer go to the one above it."""
        return self._answerer is not None

    async def send(self, text: str) -> None:
        """Hand the ``text`` of a message to the listener."""
        if self._listener is not None:
            said = self._listener(text)
            if inspect.isawaitable(said):
                await said

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Hand a request to the approver.

        Raises:
            ConfigError: the approver returned another type.
        """
        if self._approver is None:
            return None
        answer = self._approver(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, bool):
            return ApprovalAnswer(answer)
        if answer is None or isinstance(answer, ApprovalAnswer):
            return answer
        raise ConfigError(f"an approver answered {answer!r}; return True, False, None or an ApprovalAnswer")

    async def ask_question(self, question: QuestionRequest) -> QuestionReply | None:
        """Hand a question to the answerer.

        Raises:
            ConfigError: the answerer returned another type.
        """
        if self._answerer is None:
            return None
        given = self._answerer(question)
        if inspect.isawaitable(given):
            given = await given
        if given is None or isinstance(given, QuestionReply):
            return given
        return reply_from(question.items, [given] if isinstance(given, str) else given)


class QueueChannel:
    """Messages wait in ``messages``; requests wait in the tree until they are answered there."""

    leaves_requests = True
    """Requests are left to whoever looks for them; nobody is informed."""

    def __init__(
        self,
        owners: Sequence[str] = (),
        system_tier: SystemAnswer = "allow",
        message_policy: MessagePolicy | None = None,
    ) -> None:
        """Create an empty queue.

        Args:
            owners: Ids of the senders who own the tree, if the channel has several users.
            system_tier: What happens to System calls in trees whose Main has this channel.
            message_policy: Limits on messages of those trees' Branches.
        """
        self.owners = owners
        self.system_tier = system_tier
        self.message_policy = message_policy
        self.messages: asyncio.Queue[str] = asyncio.Queue()

    async def send(self, text: str) -> None:
        """Keep the ``text`` of a message."""
        self.messages.put_nowait(text)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Leave the request pending."""
        return None
