"""Plain functions beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[..., T], /, *given: Any, **named: Any) -> T:
    """Call a function in a thread and return what it returns.

    Raises:
        RuntimeError: it raised StopIteration, which no future can carry: whoever awaits would wait for ever.
    """

    def run() -> T:
        try:
            return function(*given, **named)
        except StopIteration as error:
            raise RuntimeError("the function raised StopIteration") from error

    return await asyncio.to_thread(run)
