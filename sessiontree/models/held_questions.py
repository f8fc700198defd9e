"""How a model tells whoever asked it that a question waits here and is not sent yet."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias

NoteHeld: TypeAlias = Callable[[bool], None]
"""Called with True when a question begins to wait for its turn, and with False when it waits no more."""


def _note_nothing(is_held: bool) -> None:
    """Tell nobody."""


NOTE_HELD: ContextVar[NoteHeld] = ContextVar("note_held", default=_note_nothing)
"""Who hears it, in the task that asks."""
