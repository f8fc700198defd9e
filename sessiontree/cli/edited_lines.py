"""Lines that a person types and edits at a terminal, while other lines appear above them."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import termios
import threading
from contextlib import suppress
from types import ModuleType
from typing import Any, Self

from sessiontree.cli.screen import RichScreen

PROMPT = "> "
_CLEAR = "\r\x1b[K"
_QUIET_CLEAR = f"\x01{_CLEAR}\x02"
"""Clears the line; readline does not count what is between the marks."""
_DUMB = frozenset({"", "dumb", "unknown"})


def is_editable() -> bool:
    """Return whether a person types at a terminal that can be drawn on."""
    with suppress(AttributeError, ValueError):  # a stream is missing or closed
        return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in _DUMB
    return False


def _load_readline() -> ModuleType | None:
    """Return readline; None if Python was built without it, so that the terminal alone edits lines."""
    try:
        return importlib.import_module("readline")  # it writes to some terminals, and has input() use it
    except ImportError:
        return None


class EditedLines:
    """Reads lines with readline: the arrow keys move in a line and recall earlier lines.

    Use it as a context manager on a running loop.
    """

    def __init__(self) -> None:
        self._attributes: list[Any] = []
        self._readline: ModuleType | None = None
        self._is_reading = False

    def __enter__(self) -> Self:
        """Begin."""
        self._attributes = termios.tcgetattr(sys.stdin)
        self._readline = _load_readline()
        if self._readline is not None:
            # readline would switch a mode of the terminal on that stays on if the process is killed.
            self._readline.parse_and_bind("set enable-bracketed-paste off")
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was; a thread may still wait in readline, which changes it."""
        self.step_aside()
        self._is_reading = False
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._attributes)

    async def next(self) -> str | None:
        """Return the next line without its end; None at the end of input."""
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[str | None] = loop.create_future()

        def settle(line: str | None) -> None:
            self._is_reading = False
            # The command may have ended while somebody typed; the line then belongs to nobody.
            if not typed.done():
                typed.set_result(line)

        def read() -> None:
            line: str | None = None
            with suppress(EOFError, OSError):
                line = input(_QUIET_CLEAR + PROMPT)
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(settle, line)

        self._is_reading = True
        # A daemon: a line that nobody types does not keep the process alive.
        threading.Thread(target=read, name="terminal", daemon=True).start()
        return await typed

    def step_aside(self) -> None:
        """Clear the line that is typed, for other text in its place."""
        if self._is_reading:
            sys.stdout.write(_CLEAR)
            sys.stdout.flush()

    def come_back(self) -> None:
        """Show the line that is typed again."""
        if self._is_reading:
            begun = "" if self._readline is None else self._readline.get_line_buffer()
            sys.stdout.write(PROMPT + begun)
            sys.stdout.flush()


class PromptedScreen(RichScreen):
    """Shows lines above the line that a person types.

    Args:
        typed: The lines that are typed.
    """

    def __init__(self, typed: EditedLines) -> None:
        super().__init__(sys.stdout)
        self._typed = typed

    def line(self, text: str, style: str = "") -> None:
        """Show one line at once."""
        self._typed.step_aside()
        super().line(text, style)
        self._typed.come_back()
