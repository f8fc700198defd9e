"""Streams of events that doors send, and what they hold until they are over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from typing import Any, Final

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from sessiontree.contracts.jsonable import dump_json

PING_S: Final = 15


class DoorStream(EventSourceResponse):
    """Events for the client of a door.

    Args:
        events: The events.
        held: Closed when it is over, also if its client had gone before the first event.
    """

    def __init__(self, events: AsyncIterator[dict[str, str]], held: ExitStack) -> None:
        super().__init__(events, ping=PING_S)
        self._held = held

    def when_over(self, call: Callable[[], None]) -> None:
        """Have something called when it is over."""
        self._held.callback(call)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, and let go what was held."""
        with self._held:
            await super().__call__(scope, receive, send)


def sent(event: dict[str, Any]) -> dict[str, str]:
    """Return an event as it is sent: its name is its type."""
    return {"event": event["type"], "data": dump_json(event)}
