"""A channel made of functions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.message_policy import MessagePolicy
from sessiontree.contracts.tiers import SystemAnswer

AnswerLike: TypeAlias = ApprovalAnswer | bool | None
Approver: TypeAlias = Callable[[ApprovalRequest], AnswerLike | Awaitable[AnswerLike]]
Listener: TypeAlias = Callable[[str], Awaitable[None] | None]
DisplayListener: TypeAlias = Callable[[str, str], Awaitable[None] | None]


class CallbackChannel:
    """Messages and requests go to functions, plain or async; they run on the event loop and must not block.

    Args:
        approver: Gets each request; returns an ApprovalAnswer, True, False, or None to leave it pending.
        listener: Gets each message.
        owners: Ids of the senders who own the tree, where several people speak.
        system_tier: What becomes of System calls in trees that people talk to here.
        message_policy: What Branches of those trees may send.
        show: Gets a tool's name and the line for people that it gave with its result.
    """

    def __init__(
        self,
        approver: Approver | None = None,
        listener: Listener | None = None,
        owners: Sequence[str] = (),
        system_tier: SystemAnswer = "allow",
        message_policy: MessagePolicy | None = None,
        show: DisplayListener | None = None,
    ) -> None:
        """Keep the functions and what the channel says."""
        self.owners = owners
        self.system_tier = system_tier
        self.message_policy = message_policy
        self.show = show
        self._approver = approver
        self._listener = listener

    @property
    def hears(self) -> bool:
        """Whether anybody gets messages; those to a channel that has no listener go to the one above it."""
        return self._listener is not None

    async def send(self, text: str) -> None:
        """Hand a message to the listener."""
        if self._listener is not None:
            said = self._listener(text)
            if inspect.isawaitable(said):
                await said

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Hand a request to the approver.

        Raises:
            ConfigError: it answered something else.
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
