"""Follows one tree's facts and exports its spans, in the program's process; hosts know nothing of it.

A mark file next to the journal says up to which fact the spans of a tree were exported when it was closed, so
that a resumed tree goes on with its trace and exports no span twice. While the tree is open, the file also
says up to which fact the spans have left the program. If a program dies, the spans after that are made again
from the facts when the tree is resumed, under the same ids; those that were open continue.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.journal.place import JournalPlace
from sessiontree.runtime.telemetry.span_sender import Traced
from sessiontree.runtime.telemetry.span_writer import Content
from sessiontree.runtime.telemetry.spans import SpanRecord
from sessiontree.runtime.telemetry.tree_reducer import ROOT_NAME
from sessiontree.runtime.telemetry.tree_spans import TreeSpans
from sessiontree.runtime.transport.supervisor_api import SupervisorApi

READ_AT_ONCE: Final = 128
READ_WAIT_S: Final = 20.0
PAUSE_S: Final = 0.2
"""How long facts are gathered before they are read again."""
CLOSE_WAIT_S: Final = 5.0
"""Longest time at the end for the facts that are durable by then, and for handing over their spans."""
SETTLED_S: Final = 10.0
"""Time after which spans that were handed over have left the program; exporters gather them for 5 s."""
_LOG = logging.getLogger("sessiontree")


class TraceMarks:
    """What is known about the spans that earlier programs exported.

    Args:
        path: The file of a tree; a line for each opening (``opened 12``) and closing (``closed 40``) of the
            traced tree, with the number of its newest fact, and in between lines such as ``sent 30``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cuts: list[int] = []
        """Numbers of the facts after which open spans were ended, because the tree was closed."""
        self.sent: int | None = None
        """Number of the newest fact whose spans have left their program; None = the tree was never traced."""
        with suppress(OSError):
            for line in path.read_text("ascii", "replace").splitlines():
                word, _, number = line.partition(" ")
                if number.isdecimal() and int(number) >= 0:
                    self.cuts += [int(number)] if word == "closed" else []
                    if self.sent is None or word != "opened":
                        self.sent = max(self.sent or 0, int(number))

    def add(self, word: str, seq: int) -> None:
        """Append a line; if the disk refuses, a resumed tree may repeat spans."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, f"{word} {seq}\n".encode("ascii"))
            finally:
                os.close(descriptor)
        except OSError as error:
            _LOG.warning("can't note how far a tree is traced: %s", error)


class SpanSink(Protocol):
    """What takes the spans of trees."""

    def samples(self, trace_id: str, name: str) -> bool:
        """Return whether a tree's spans are wanted."""
        ...

    def offer(self, records: Sequence[SpanRecord], traced: Traced) -> None:
        """Take ended spans; never waits."""
        ...

    def call_when_idle(self, action: Callable[[], None]) -> None:
        """Call an action once everything that was offered before was handed on."""
        ...


class TreeTracer:
    """Traces one open tree.

    Args:
        supervisor: Answers for the tree.
        config: The tree's configuration.
        sender: Takes its spans.
        journal_dir: The directory of its journal; None = no mark is read or made, and spans that are open
            when the tree is closed are left out.
        content: What of contents spans may hold; None = nothing.
        settled_s: Time after which spans that were handed over have left the program.
        display: What of tools' lines for people spans may hold; None = nothing.
    """

    def __init__(
        self,
        supervisor: SupervisorApi,
        config: TreeConfig,
        sender: SpanSink,
        journal_dir: Path | None,
        content: Content | None = None,
        settled_s: float = SETTLED_S,
        display: Content | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._tree_id = config.tree_id
        self._sender = sender
        self._spans = TreeSpans(config, content, display)
        self._traced = Traced(self._spans.trace_id, tuple(_find_program_spans(os.environ)))
        self._marks_path = (
            None if journal_dir is None else JournalPlace(journal_dir).trace_marks(config.tree_id)
        )
        self._is_ready = False
        """Whether the facts of earlier programs are taken in."""
        self._marks: TraceMarks | None = None
        self._seen = 0
        self._settled_s = settled_s
        self._handed_over: tuple[float, int] | None = None
        """A time, and the number of the newest fact whose spans were handed over by then."""
        self._is_broken = False
        self._closing = asyncio.Event()
        """Never set; what waits for it is cancelled when the tree is closed."""
        self._reader: asyncio.Task[None] | None = None

    def open(self, after: int) -> None:
        """Begin to follow the tree; facts up to a number are of earlier programs."""
        if self._sender.samples(self._traced.trace_id, ROOT_NAME):
            self._reader = asyncio.create_task(self._follow(after))

    async def close(self) -> None:
        """Export the spans of the facts that are durable by now, and end those that are open; bounded."""
        reader, self._reader = self._reader, None
        if reader is None:
            return
        reader.cancel()
        if not reader.done():  # a finished reader may belong to a closed loop
            await asyncio.wait({reader})
        if self._is_broken or not self._is_ready:
            return
        with suppress(SessionTreeError, TimeoutError):
            async with asyncio.timeout(CLOSE_WAIT_S):
                last = await self._supervisor.last_seq(self._tree_id)
                while self._seen < last and not self._is_broken:
                    await self._take(CLOSE_WAIT_S)
        if self._seen and not self._is_broken and self._marks is not None:
            self._sender.offer(self._spans.cut(self._seen), self._traced)
            self._marks.add("closed", self._seen)
        await wait_until_sent(self._sender)

    async def _follow(self, after: int) -> None:
        try:
            await self._catch_up(after)
            while not self._is_broken:
                await self._take(READ_WAIT_S)
                await self._mark_sent()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_S):
                        await self._closing.wait()
        except SessionTreeError:
            return  # the tree no longer runs in this process

    async def _catch_up(self, after: int) -> None:
        """Take in the facts whose spans earlier programs exported."""
        marks = None if self._marks_path is None else await asyncio.to_thread(TraceMarks, self._marks_path)
        done = after if marks is None or marks.sent is None else min(marks.sent, after)
        cuts = [] if marks is None else [seq for seq in marks.cuts if 0 < seq <= done]
        while self._seen < done and not self._is_broken:
            most = min(READ_AT_ONCE, (cuts[0] if cuts else done) - self._seen)
            await self._take(READ_WAIT_S, most, is_known=True)
            if cuts and cuts[0] <= self._seen:
                self._spans.cut(cuts.pop(0))
        self._marks, self._is_ready = marks, True
        if marks is not None:
            await asyncio.to_thread(marks.add, "opened", after)

    async def _mark_sent(self) -> None:
        """Note up to which fact the spans have left the program; at most once in ``settled_s``."""
        now_s = asyncio.get_running_loop().time()
        if self._handed_over is not None and now_s - self._handed_over[0] < self._settled_s:
            return
        handed_over, self._handed_over = self._handed_over, (now_s, self._seen)
        if handed_over is not None and self._marks is not None and handed_over[1] > (self._marks.sent or 0):
            self._marks.sent = handed_over[1]
            await asyncio.to_thread(self._marks.add, "sent", handed_over[1])

    async def _take(self, wait_s: float, most: int = READ_AT_ONCE, *, is_known: bool = False) -> None:
        records = await self._supervisor.read(self._tree_id, self._seen, most, wait_s)
        for record in records:
            self._seen = record.seq
            try:
                ended = self._spans.add(record)
            except Exception as error:  # noqa: BLE001 - whatever happens here, the tree goes on
                self._is_broken = True
                name = type(error).__name__  # its text may hold content
                _LOG.warning("tree %s is not traced after fact %d: %s", self._tree_id, record.seq, name)
                return
            if not is_known:
                self._sender.offer(ended, self._traced)


async def wait_until_sent(sender: SpanSink) -> None:
    """Wait, within a limit, until the provider has all spans that were offered before."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    sender.call_when_idle(lambda: _wake(loop, done))
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_WAIT_S):
            await done.wait()


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(event.set)


def _find_program_spans(environ: Mapping[str, str]) -> list[SpanContext]:
    """Return the span that the program is in: its current one, else that of the variable TRACEPARENT."""
    current = get_current_span().get_span_context()
    if not current.is_valid and "TRACEPARENT" in environ:
        carrier: dict[str, Any] = {"traceparent": environ["TRACEPARENT"]}
        current = get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()
    return [current] if current.is_valid else []
