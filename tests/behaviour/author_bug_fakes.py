"""Code of an author with a bug two calls deep: a tool, and functions that answer as models."""

from __future__ import annotations

from sessiontree import PermissionTier, tool
from sessiontree.models.answers import Answer
from sessiontree.models.port import ModelRequest
from tests.behaviour.waiting_fakes import Sleeper


def halve(number: int) -> float:
    """Divide by what is never there."""
    return number / 0


@tool(tier=PermissionTier.READ_ONLY, kinds=Sleeper.kinds)
def divide(number: int) -> float:
    """Divide a number."""
    return halve(number)


def confuse(request: ModelRequest) -> Answer:
    """Look up what is not there."""
    return {"known": "an answer"}["asked"]


async def confuse_later(request: ModelRequest) -> Answer:
    """Do the same where a model may wait."""
    return confuse(request)
