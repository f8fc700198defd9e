"""What watchers hear of the calls of one session: their start, their progress and their end."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial

from sessiontree.contracts.facts.session_facts import CallResolved, SessionFact, TurnReplied
from sessiontree.contracts.reports.events import (
    ToolEvent,
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
    ToolExecutionUpdate,
    encode_for_screen,
)
from sessiontree.contracts.settings.settings import ImageLimits
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import CallSignals, ReportCallback
from sessiontree.contracts.tools.tool import OF_TIMEOUTS
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolCall, ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.short_values import SHOWN_CHARS
from sessiontree.dispatch.images import Pictures
from sessiontree.dispatch.results import ImmediateOutcome, PreparedCall
from sessiontree.runtime.rights.session_rights import Facades
from sessiontree.runtime.transport.progress import ProgressHub
from sessiontree.sandbox import SessionTurns

MAX_WAITING = 256
"""Most progress values that wait for images or hooks; the oldest is dropped first."""


MAX_UPDATE_IMAGES = 4
"""Most images of one update."""


@dataclass(slots=True)
class ToolReport:
    """Progress of a running call that a tool reported."""

    key: str
    """The call in its session."""
    call_id: str
    tool: str
    signals: CallSignals
    progress: JsonValue
    images: tuple[ImageContent, ...]
    given: int
    """How many images the tool gave."""


class CallWatch:
    """Sends one session's progress to the hub, and counts abandoned calls."""

    def __init__(
        self,
        hub: ProgressHub,
        tree_id: str,
        session: str,
        facades: Facades,
        config: AgentConfig | None = None,
    ) -> None:
        """Bind hub and session. Progress of tools passes through a facade of the session.

        ``config`` has the limits of images in updates; None = the defaults.
        """
        self._config = config or AgentConfig()
        self._pictures: Pictures | None = None
        self._waiting: deque[ToolReport] = deque(maxlen=MAX_WAITING)
        self._showing: asyncio.Task[None] | None = None
        self._hub = hub
        self._tree_id = tree_id
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.readers: Sequence[object] = hub.get_readers(tree_id)
        """The tree's watchers; empty = nobody watches."""
        self.abandoned = 0
        """Calls that ignored their cancellation and may still run."""
        self._begun: set[str] = set()
        """Keys of calls that began and have no result yet."""
        self._asked: dict[str, ToolCall] = {}
        """Calls of the newest reply that have not begun yet."""
        self._updated = facades.notice(self._update)

    def began(self, key: str, call: ToolCall) -> None:
        """Report that a call begins, once for each call."""
        self._asked.pop(key, None)
        if key not in self._begun:
            self._begun.add(key)
            self._emit(ToolExecutionStart(call.id, call.name, call.arguments))

    def make_progress_callback(self, prepared: PreparedCall, signals: CallSignals) -> ReportCallback:
        """Return the callback for the progress of an attempt; any thread may call it."""
        # A tool can reach this closure, so it holds only names and not the checked call.
        return partial(self._updated, prepared.call.key, prepared.provider_id, prepared.entry.name, signals)

    def _update(
        self,
        key: str,
        call_id: str,
        tool: str,
        signals: CallSignals,
        progress: JsonValue,
        images: tuple[ImageContent, ...] = (),
    ) -> None:
        report = ToolReport(key, call_id, tool, signals, progress, images[:MAX_UPDATE_IMAGES], len(images))
        if threading.get_ident() == self._thread:
            self._take(report)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, report)

    def _take(self, report: ToolReport) -> None:
        """Show a report now, or after those whose images are being fitted."""
        if report.signals.over:
            return
        if not report.given and self._showing is None:
            self._emit(ToolExecutionUpdate(report.call_id, report.tool, report.progress))
        else:
            self._queue(report)

    def _queue(self, report: ToolReport) -> None:
        """Show a report after those that wait; only the newest one that waits keeps its images."""
        if not self.readers:
            return
        if report.images:
            for each in self._waiting:
                each.images = ()
        self._waiting.append(report)
        if self._showing is None:
            self._showing = asyncio.create_task(self._show_waiting())

    async def _show_waiting(self) -> None:
        try:
            while self._waiting:
                report = self._waiting.popleft()
                if not report.signals.over:
                    await self._show(report)
        finally:
            self._showing = None

    async def _show(self, report: ToolReport) -> None:
        """Fit the images of a report, and emit it unless its call has ended meanwhile."""
        content: tuple[TextContent | ImageContent, ...] = ()
        if report.images:
            if self._pictures is None:  # people see them, also where the model reads only text
                limits = self._config.images or ImageLimits()
                self._pictures = Pictures(limits, self._config.context_tokens)
            message = ToolResultMessage(report.call_id, report.tool, report.images)
            fitted = await self._pictures.fit(message, max_chars=SHOWN_CHARS, harmless=False)
            content = tuple(
                block for block in fitted.content if isinstance(block, TextContent | ImageContent)
            )
        if omitted := report.given - len(report.images):
            note = f"[{omitted} of {report.given} images of this update were left out]"
            content = (TextContent(note), *content)
        if not report.signals.over:
            self._emit(ToolExecutionUpdate(report.call_id, report.tool, report.progress, content))

    def waits(self, prepared: PreparedCall, turns: SessionTurns) -> None:
        """Report that a call waits until other commands have ended."""
        ahead = turns.waiting
        why = f"at most {turns.most} commands of a session run at a time; {ahead} wait before this one"
        self._emit(ToolExecutionUpdate(prepared.provider_id, prepared.entry.name, {"waiting": why}))

    def retries(self, prepared: PreparedCall, failed: ImmediateOutcome, attempt: int, delay_s: float) -> None:
        """Report that an attempt failed and that the call will be tried again."""
        tool, details = prepared.entry.tool, failed.message.details
        code = str(details.get("code")) if isinstance(details, dict) else failed.outcome
        attempts = (tool.retry or OF_TIMEOUTS).attempts
        self._emit(
            ToolExecutionRetry(prepared.provider_id, tool.name, attempt, attempts, code, round(delay_s, 3))
        )

    def observe(self, facts: Sequence[SessionFact]) -> None:
        """Report the calls that have a result; for a call that never began, report its beginning first."""
        for fact in facts:
            if isinstance(fact, TurnReplied):
                calls = fact.message.tool_calls
                self._asked = {f"{fact.turn}.{index}": call for index, call in enumerate(calls)}
            elif isinstance(fact, CallResolved):
                if fact.key in self._asked:
                    self.began(fact.key, self._asked[fact.key])
                self._begun.discard(fact.key)
                message = fact.message
                result = encode_for_screen(message)
                self._emit(
                    ToolExecutionEnd(message.tool_call_id, message.tool_name, result, message.is_error)
                )

    def _emit(self, event: ToolEvent) -> None:
        self._hub.emit(self._tree_id, self._session, event)
