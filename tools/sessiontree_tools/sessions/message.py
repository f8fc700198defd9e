"""Tools that reach the person at the session's channel: ``message`` tells, and ``ask_user`` asks.

``ask_user`` waits for the answer. It asks for no approval: what a person answers is text for the model, and
allows no call.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import CHANNEL
from sessiontree.contracts.recorded.questions import QuestionsAsked
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.client_tool import ClientTool
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Tool, ToolFlag

MAX_CHARS = 20_000
"""Longest message."""


class MessageParams(BaseModel):
    """What to say."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=MAX_CHARS)

    @field_validator("text")
    @classmethod
    def _refuse_blank(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("the message contains only white space")
        return text


class Message(Tool[MessageParams]):
    """Sends a message over the session's channel."""

    name = "message"
    description = "Send the person an interim message; your final reply needs none."
    brief = True
    Params: ClassVar[type[BaseModel]] = MessageParams
    label = "Send message"
    section = "messaging"
    profiles = frozenset({"messaging"})
    tier = PermissionTier.SYSTEM
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"channel"})
    sequential = True

    async def execute(self, params: MessageParams, ctx: ToolContext) -> ToolResult:
        """Send the text; the output is ``{status: "sent", chars}``.

        Raises:
            PermissionDenied: the session has no channel.
        """
        await ctx.require(CHANNEL).send(params.text)
        return ToolResult(
            output={"status": "sent", "chars": len(params.text)},
            display=f"sent a message of {len(params.text)} characters",
        )


class AskUser(ClientTool):
    """Asks a person; the output is ``{answers: [{question, chosen, text}]}``."""

    label: ClassVar[str] = "Ask the person"
    section: ClassVar[str] = "messaging"
    profiles: ClassVar[frozenset[str]] = frozenset({"coding", "messaging"})
    brief: ClassVar[bool] = True

    def __init__(self) -> None:
        """Declare the tool."""
        super().__init__(
            "ask_user",
            "Ask the person when only they can decide. It approves nothing.",
            QuestionsAsked,
            tier=PermissionTier.READ_ONLY,
            flags=(ToolFlag.OPTIONAL,),
        )
