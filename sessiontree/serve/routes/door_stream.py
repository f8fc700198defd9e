"""Streams of events that doors send, and what they hold until they are over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack
from typing import Any, Final

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from sessiontree.contracts.values.jsonable import dump_json

PING_S: Final = 15
DONE: Final = ServerSentEvent("[DONE]").encode()
"""The last event of every stream."""


class DoorStream(EventSourceResponse):
    """Events for the client of a door.

    Args:
        events: The events, encoded; those that are known together are one piece.
        held: Closed when it is over, also if its client had gone before the first event.
    """

    def __init__(self, events: AsyncIterator[bytes], held: ExitStack) -> None:
        super().__init__(events, ping=PING_S)
        self._held = held

    def call_when_over(self, call: Callable[[], None]) -> None:
        """Have something called when it is over."""
        self._held.callback(call)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, and let go what was held."""
        with self._held:
            await super().__call__(scope, receive, send)


def encode_events(events: Iterable[dict[str, Any]]) -> bytes:
    """Return events as they are sent; the name of each is its type, if it has one."""
    return b"".join(ServerSentEvent(dump_json(each), event=each.get("type")).encode() for each in events)
