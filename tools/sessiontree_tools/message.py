"""``message``: sends a message to the person at the session's channel.

It does not ask: approvals and questions go through the runtime.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sessiontree.contracts.context import CHANNEL, ToolContext
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool

MAX_CHARS = 20_000
"""Longest message."""


class MessageParams(BaseModel):
    """What to say."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=MAX_CHARS)

    @field_validator("text")
    @classmethod
    def _says_something(cls, text: str) -> str:
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
