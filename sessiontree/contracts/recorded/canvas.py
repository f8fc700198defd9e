"""The canvas of a session: a page or surfaces that it shows to a person, in a frame of the console.

A canvas is state of the tree: it is journaled, survives a restart, and may have no viewer, one or several.
What a frame answers, and what a person does in it, comes from outside: it is information, never an approval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias

from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

CanvasAction: TypeAlias = Literal["present", "hide", "navigate", "a2ui_push", "a2ui_reset"]
"""What changes a canvas."""
CanvasQuestionKind: TypeAlias = Literal["eval", "snapshot"]
"""What a frame that shows a canvas is asked."""

MAX_CONTENT_BYTES: Final = 256 * 1024
"""Most bytes of one change, as compact JSON."""
MAX_CANVAS_BYTES: Final = 1024 * 1024
"""Most bytes of a whole canvas, as compact JSON."""
MAX_SURFACES: Final = 16
"""Most surfaces of one canvas."""
MAX_COMPONENTS: Final = 1_000
"""Most components of one surface."""
MAX_CANVASES: Final = 16
"""Most sessions of one tree that have a canvas at once."""
MAX_CODE_CHARS: Final = 20_000
"""Longest script of one question."""
MAX_ANSWER_CHARS: Final = 200 * 1024
"""Longest answer of a frame, as JSON text; a longer one is refused by the frame."""
WITH_DOCUMENT: Final = "document"
"""In place of a script, asks a snapshot for the document too, so that a picture can be made of it."""
MAX_DEPTH: Final = 32
"""How deeply a value of a canvas may be nested."""
MAX_ACTION_CHARS: Final = 8_000
"""Longest action of a person, as JSON text."""

ON_CANVAS: Final = "canvas"
"""Source of the text that a canvas brings into a session."""
CANVAS_USER: Final = Principal("canvas", "", "canvas", "", False)
"""On whose behalf a turn acts that an action on a canvas began: whoever it was, nobody who owns the tree. The
content of the frame can make an action by itself."""


@dataclass(frozen=True, slots=True)
class CanvasReport:
    """A canvas after a change."""

    is_shown: bool
    page: str
    """What is shown: ``html``, ``file``, ``web``, ``a2ui``, or empty if nothing was presented."""
    surfaces: Mapping[str, int]
    """The number of components, by surface."""
    viewers: int
    """How many frames showed it within the last seconds."""


@dataclass(frozen=True, slots=True)
class CanvasQuestion:
    """What one frame is asked."""

    id: str
    """Random."""
    kind: str
    """``eval`` or ``snapshot``."""
    code: str


class Canvas(Protocol):
    """The session's canvas.

    Raises (every method):
        ValidationError: the content is not valid, or does not fit what the canvas holds; names the field.
        ExecutionError: a limit of the canvas is reached, or no frame shows it; the text says what to do.
    """

    async def change(
        self, action: CanvasAction, content: Mapping[str, JsonValue], *, key: str
    ) -> CanvasReport:
        """Change the canvas; durable when this returns.

        Args:
            action: What to do.
            content: ``{html}``, ``{path}`` or ``{url, html}`` of a page; ``{ops}`` of surfaces; else empty.
            key: Identifies this call. A repeat with the same key changes nothing.
        """
        ...

    async def ask(self, kind: CanvasQuestionKind, code: str, *, key: str, timeout_s: float) -> JsonValue:
        """Ask one of the frames that show the canvas, and return its answer: text from outside.

        Args:
            kind: ``eval`` runs ``code`` in the frame; ``snapshot`` describes what it shows.
            code: A script; for a snapshot empty, or ``WITH_DOCUMENT``.
            key: Identifies this call; a frame gets a question once.
            timeout_s: How long to wait for the answer.
        """
        ...
