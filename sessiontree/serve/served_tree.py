"""One tree that is served: its feed, its content, and the way to the program that runs it, if one does."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias

from sessiontree.api.stored.journaled_trees import fork_tree, replay_tree
from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.recorded.approvals import ApprovalAnswer
from sessiontree.contracts.recorded.questions import (
    MAX_OPTIONS,
    MAX_QUESTIONS,
    QuestionAnswer,
    QuestionReply,
    QuestionRequest,
    Surface,
)
from sessiontree.contracts.reports.replay_report import ReplayReport
from sessiontree.contracts.values.jsonable import dump_readable
from sessiontree.control.client import ControlClient
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_config
from sessiontree.runtime.transport.supervisor_api import MAX_READ, MAX_READ_WAIT_S
from sessiontree.serve.canvas_frames import CanvasFrame, CanvasPages, make_frame
from sessiontree.serve.canvas_verbs import CanvasVerbs, show_canvas, watch_pages
from sessiontree.tree.report import ReceiptLine
from sessiontree.view.content import READ_VERBS, Content
from sessiontree.view.feed import TreeFeed
from sessiontree.view.markdown import make_lines_visible
from sessiontree.view.rows import find_meant_labels

Json = dict[str, Any]
Act: TypeAlias = Callable[[ControlClient, Mapping[str, Any]], Awaitable[Json]]

ACT_VERBS: Final = (
    *("approve", "deny", "answer", "steer", "interrupt", "cancel"),
    *("canvas_act", "canvas_answer", "canvas_leave", "canvas_wait"),
)
"""What a viewer of a live tree may do."""
CANVAS: Final = "canvas"
"""What a viewer of any tree may ask: the surfaces of a session's canvas."""
FORK: Final = "fork"
"""What a viewer of any tree may do: a fork changes nothing of the tree that it is made of."""
READ_AT_ONCE: Final = 4_096
FIRST_READ: Final = 2 * READ_AT_ONCE
"""How many facts are taken in before a viewer sees the first rows."""
LOOK_EVERY_S: Final = 1.0
"""How often a tree that no program runs is looked at again."""
MAX_VALUE_CHARS: Final = 2_000
MAX_SUMMARY_CHARS: Final = 400
MAX_WORDS: Final = 20_000
"""Longest text that a viewer may send."""


class ServedTree:
    """A tree of one journal. Open it, then ask; :attr:`feed` follows the tree until it is closed.

    Args:
        place: The directory of the journal.
        tree_id: The tree.
        surface: Where its viewers answer, for the journal.
        may_act: Whether viewers may answer, steer, stop and fork; False = they only look.
    """

    feed: TreeFeed
    _content: Content
    _journal: Journal

    def __init__(self, place: Path, tree_id: str, surface: Surface, *, may_act: bool = True) -> None:
        self.tree_id = tree_id
        self._stored_can: tuple[str, ...] = (FORK,) if may_act else ()
        self._live_can: tuple[str, ...] = (*ACT_VERBS, FORK) if may_act else ()
        self._place = place
        self._surface = surface
        self._client: ControlClient | None = None
        self._following: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        """Watches the files that canvases show."""
        self._turn = asyncio.Lock()
        """One thread at a time reads the journal."""
        self._seq = 0
        self._is_whole = asyncio.Event()
        self._has_looked = asyncio.Event()
        """Whether it is known if a program runs the tree."""
        self._failure: SessionTreeError | None = None
        """Why the journal could not be read to its end."""
        self._sent: set[asyncio.Task[object]] = set()
        """Messages that wait for their answers."""
        canvases = CanvasVerbs(tree_id, self._find_session)
        acts = (
            *(self._approve, self._deny, self._answer, self._steer, self._interrupt, self._cancel),
            *(canvases.act, canvases.answer, canvases.leave, canvases.wait),
        )
        self._acts: Mapping[str, Act] = dict(zip(ACT_VERBS, acts, strict=True))

    async def open(self) -> None:
        """Read the beginning of what the journal holds; the rest is read, and followed, from now on.

        Viewers of a large tree see its rows come. :meth:`wait_until_whole` waits for the last of them.

        Raises:
            TreeNotFound, JournalError: the tree can't be read.
        """
        self._journal = await asyncio.to_thread(Journal.open, self._place, read_only=True)
        try:
            config = read_config(await asyncio.to_thread(self._journal.row0, self.tree_id))
            self.feed = TreeFeed(config, can=self._stored_can)
            while self._seq < FIRST_READ and await self._read_more():
                pass
            self.feed.set_whole(self._seq < FIRST_READ)
        except BaseException:
            self._journal.release()
            raise
        self._content = Content(self._journal, self.feed)
        self._pages = CanvasPages(Path(config.workspace), (self._place,))
        self._following = asyncio.create_task(self._follow())
        self._watching = asyncio.create_task(watch_pages(self.feed, self._pages))

    async def wait_until_whole(self) -> None:
        """Wait until all facts that the journal held were taken in.

        Raises:
            JournalError: some of them can't be read.
        """
        await self._is_whole.wait()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Stop following."""
        tasks = [task for task in (self._following, self._watching) if task is not None]
        self._following = self._watching = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for sending in self._sent:
            sending.cancel()
        await self._let_go()
        async with self._turn:
            # Under the turn: a thread may still read, and a connection must not be closed under it.
            self._journal.release()

    async def ask(self, verb: str, given: Mapping[str, Any]) -> Json:
        """Answer a verb of a viewer.

        Raises:
            ConfigError: the verb is unknown here, or what it was given is wrong.
            SessionTreeError: what was asked for can't be done.
        """
        if verb == "snapshot":
            return self.feed.snapshot()
        if verb in {*self._acts, FORK} and FORK not in self._stored_can:
            raise ConfigError(f"tree {self.tree_id} belongs to a benchmark run: it can only be looked at")
        await self.wait_until_whole()
        if verb in self._acts:
            await self._has_looked.wait()  # who acts at once is not refused before the first look has ended
            if self._client is None:
                raise ConfigError(
                    f"no program runs tree {self.tree_id}: it can be looked at, and not changed"
                )
            return await self._acts[verb](self._client, given)
        if verb == CANVAS:
            return show_canvas(self.feed, self._find_session(given))
        if verb == FORK:
            return await self._fork(given)
        if verb == "replay":
            return _format_replay(await asyncio.to_thread(replay_tree, self._place, self.tree_id))
        if verb not in READ_VERBS:
            known = ", ".join(("snapshot", "replay", CANVAS, *READ_VERBS, *ACT_VERBS, FORK))
            raise ConfigError(f"{verb[:40]!r} is not a verb; use one of {known}")
        async with self._turn:
            return await asyncio.to_thread(self._content.answer, verb, given)

    async def frame(self, session: str) -> CanvasFrame:
        """Return the document of a frame that shows a session's canvas.

        Raises:
            ConfigError: it has no canvas, or shows nothing.
        """
        panel = self.feed.tree.canvases.get(session)
        if panel is None or not panel.state.is_shown:
            raise ConfigError(f"session {session[:100]!r} shows no canvas")
        return await asyncio.to_thread(make_frame, panel.state, self._pages)

    async def _read_more(self) -> bool:
        """Take the next facts of the journal in; return whether there were any."""
        async with self._turn:
            records = await asyncio.to_thread(
                self._journal.read, self.tree_id, after_seq=self._seq, max_n=READ_AT_ONCE
            )
        await self._take(records)
        return bool(records)

    async def _take(self, records: list[JournalRecord]) -> None:
        for number, record in enumerate(records):
            if number % 256 == 255:
                await asyncio.sleep(0)  # other viewers get their turn
            self.feed.take(record)
            self._seq = record.seq

    async def _follow(self) -> None:
        try:
            while await self._read_more():
                pass
            self.feed.set_whole(True)
        except SessionTreeError as error:
            self._failure = error
            # No look follows, so that who wants to act must not wait for one.
            self._has_looked.set()
            return
        finally:
            # Also after a failure: who waits then gets the error, and does not wait for ever.
            self._is_whole.set()
        while True:
            with suppress(SessionTreeError, OSError):
                await self._follow_live()
            self._has_looked.set()
            self.feed.set_live(False, self._stored_can)
            await self._let_go()
            with suppress(SessionTreeError):
                await self._read_more()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _follow_live(self) -> None:
        """Follow the tree through the program that runs it, until it lets the tree go."""
        client = await ControlClient.find(self._place)
        if client is None:
            return
        # Before the tree is asked for, so that `_let_go` closes the client whatever fails next.
        self._client = client
        if self.tree_id not in await client.supervisor.open_trees():
            return
        self.feed.set_live(True, self._live_can)
        self._has_looked.set()
        while True:
            await self._take(await client.supervisor.read(self.tree_id, self._seq, MAX_READ, MAX_READ_WAIT_S))

    async def _let_go(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _approve(self, client: ControlClient, given: Mapping[str, Any]) -> Json:
        always = given.get("always", False)
        if not isinstance(always, bool):
            raise ConfigError("always: give true or false")
        answer = ApprovalAnswer(True, _read_words(given, "reason"), always)
        await client.supervisor.decide(
            self.tree_id, _read_words(given, "id", 200), answer, surface=self._surface
        )
        return {}

    async def _deny(self, client: ControlClient, given: Mapping[str, Any]) -> Json:
        answer = ApprovalAnswer(False, _read_words(given, "reason"))
        await client.supervisor.decide(
            self.tree_id, _read_words(given, "id", 200), answer, surface=self._surface
        )
        return {}

    async def _answer(self, client: ControlClient, given: Mapping[str, Any]) -> Json:
        question_id = _read_words(given, "id", 200)
        reply = _reply(given.get("answers"), self.feed.tree.questions.get(question_id))
        answer_id = secrets.token_hex(16)
        await client.supervisor.answer_question(
            self.tree_id, question_id, reply, answer_id, surface=self._surface
        )
        return {}

    async def _steer(self, client: ControlClient, given: Mapping[str, Any]) -> Json:
        text = _read_words(given, "text")
        if not text.strip():
            raise ConfigError("text: say something to the session")
        session, message = self._find_session(given), f"view-{secrets.token_hex(8)}"
        # its answer is in the transcript; what waits for it here would end with the viewer
        sending = asyncio.create_task(client.supervisor.send(self.tree_id, session, text, "steer", message))
        await asyncio.wait([sending], timeout=0.2)
        if sending.done():
            sending.result()
        else:
            self._sent.add(sending)
            sending.add_done_callback(self._sent.discard)
        return {}

    async def _interrupt(self, client: ControlClient, given: Mapping[str, Any]) -> Json:
        reason = _read_words(given, "reason") or "interrupted in a view"
        lines = await client.supervisor.interrupt(self.tree_id, self._find_session(given), reason)
        return {"lines": _format_lines(lines)}

    async def _cancel(self, client: ControlClient, given: Mapping[str, Any]) -> Json:
        reason = _read_words(given, "reason") or "cancelled in a view"
        lines = await client.supervisor.stop(self.tree_id, self._find_session(given), reason)
        return {"lines": _format_lines(lines)}

    async def _fork(self, given: Mapping[str, Any]) -> Json:
        at = given.get("at")
        if not isinstance(at, int) or isinstance(at, bool):
            raise ConfigError("at: give the number of a fact that both trees share")
        async with self._turn:
            last = await asyncio.to_thread(self._end_of_event, at)
        made = await asyncio.to_thread(fork_tree, self._place, self.tree_id, last)
        return {"tree_id": made.tree_id, "at": made.forked_at}

    def _end_of_event(self, at: int) -> int:
        """Return the last of the facts that follow from one event with a fact: a fork takes all or none."""
        first = self._journal.read(self.tree_id, after_seq=at - 1, max_n=1)
        cause = first[0].cause if first else None
        while records := self._journal.read(self.tree_id, after_seq=at, max_n=256):
            of_same = sum(1 for _ in takewhile(lambda record: record.cause == cause, records))
            at += of_same
            if of_same < len(records):
                break
        return at

    def _find_session(self, given: Mapping[str, Any]) -> str:
        session = _read_words(given, "session", 1_000)
        if session not in self.feed.tree.sessions:
            raise ConfigError(f"session: the tree has no session {session[:100]!r}")
        return session


def _format_replay(report: ReplayReport) -> Json:
    differences = () if report.difference is None else (report.difference,)
    return {
        "compared": report.compared,
        "facts": report.facts,
        "differences": [
            {
                "seq": each.seq,
                "what": make_visible(each.reason),
                "recorded": make_lines_visible(dump_readable(each.found)[:MAX_VALUE_CHARS]),
                "replayed": make_lines_visible(dump_readable(each.expected)[:MAX_VALUE_CHARS]),
            }
            for each in differences
        ],
    }


def _format_lines(lines: Iterable[ReceiptLine]) -> list[list[str]]:
    return [
        [line.session_id, line.status.value, make_visible(line.summary[:MAX_SUMMARY_CHARS])] for line in lines
    ]


def _reply(answers: object, question: QuestionRequest | None) -> QuestionReply:
    """Return the answers of a viewer; whether they fit the questions is checked where those wait.

    Raises:
        ConfigError: they are not a short list of ``{chosen, text}``.
    """
    if not isinstance(answers, list) or len(answers) > MAX_QUESTIONS:
        raise ConfigError(f"answers: give a list of 1 to {MAX_QUESTIONS} answers")
    return QuestionReply(tuple(_answer(each, question, number) for number, each in enumerate(answers)))


def _answer(given: object, question: QuestionRequest | None, number: int) -> QuestionAnswer:
    chosen = given.get("chosen", []) if isinstance(given, dict) else None
    if (
        not isinstance(given, dict)
        or not isinstance(chosen, list)
        or len(chosen) > MAX_OPTIONS
        or not all(isinstance(label, str) for label in chosen)
    ):
        raise ConfigError("answers: an answer is an object with chosen, a list of labels, and text")
    return QuestionAnswer(find_meant_labels(question, number, chosen), _read_words(given, "text"))


def _read_words(given: Mapping[str, Any], name: str, most: int = MAX_WORDS) -> str:
    value = given.get(name, "")
    if not isinstance(value, str) or len(value) > most:
        raise ConfigError(f"{name}: give a text of at most {most:,} characters")
    return value
