"""The canvas of a session whose content the owner's hooks judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import cast

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.canvas import Canvas, CanvasAction, CanvasQuestionKind, CanvasReport
from sessiontree.contracts.tools.hooks import HookContext, HookText
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.dispatch.hook_chain import WordHooks
from sessiontree.dispatch.hook_run import HookFault

ON_CANVAS_CHANGE = "canvas"
"""Key of failures of hooks at the content of a canvas."""


class HookedCanvas:
    """Changes the canvas, with the content as hooks leave it; questions pass unchanged."""

    __slots__ = ("_blame", "_canvas", "_context", "_words")

    def __init__(
        self,
        canvas: Canvas,
        words: WordHooks,
        context: HookContext,
        blame: Callable[[str, HookFault], None],
    ) -> None:
        self._canvas = canvas
        self._words = words
        self._context = context
        self._blame = blame

    async def change(
        self, action: CanvasAction, content: Mapping[str, JsonValue], *, key: str
    ) -> CanvasReport:
        """Change the canvas; durable when this returns.

        Raises:
            PermissionDenied: a hook forbids it, a guard failed, or what is left of the content is no JSON.
        """
        screened = {name: await self._screen(value) for name, value in content.items()}
        return await self._canvas.change(action, screened, key=key)

    async def ask(self, kind: CanvasQuestionKind, code: str, *, key: str, timeout_s: float) -> JsonValue:
        """Ask one of the frames that show the canvas, and return its answer."""
        return await self._canvas.ask(kind, code, key=key, timeout_s=timeout_s)

    async def _screen(self, value: JsonValue) -> JsonValue:
        text = value if isinstance(value, str) else dump_readable(value)
        if not text.strip():
            return value
        kept = await self._words.screen_outgoing(HookText(text, "channel"), self._context)
        self._note(kept.faults)
        if kept.block is not None:
            raise self._make_refusal(kept.block)
        self._note(await self._words.sent(HookText(kept.text, "channel"), self._context))
        if isinstance(value, str):
            return kept.text
        try:
            return cast("JsonValue", json.loads(kept.text))
        except (ValueError, RecursionError):
            raise self._make_refusal("what a hook left of it is not JSON") from None

    def _note(self, faults: tuple[HookFault, ...]) -> None:
        for fault in faults:
            self._blame(ON_CANVAS_CHANGE, fault)

    def _make_refusal(self, reason: str) -> PermissionDenied:
        words = f"session {self._context.session_id!r} may not show this to people: {reason}"
        return PermissionDenied(PermissionTier.SYSTEM, words)
