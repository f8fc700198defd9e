"""Chat: what ``sessiontree chat`` does: a person talks to a session of a live tree."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from sessiontree.cli.approval_prompt import Answering
from sessiontree.cli.connect import live_journal, news_of, open_tree
from sessiontree.cli.jobs import run_jobs
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import state_dir_of
from sessiontree.cli.tree_report import portrait_of
from sessiontree.cli.typed_lines import TypedLines
from sessiontree.contracts.errors import JournalError, SessionClosed, SessionTreeError
from sessiontree.contracts.event_display import display_of
from sessiontree.contracts.stimuli import SendMode
from sessiontree.contracts.tree_facts import ChannelSaid, SessionEnded
from sessiontree.control.client import ControlClient
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import kind_in
from sessiontree.runtime.replay import fact_of

MOST_SENT = 16
"""Messages that wait for their replies; later ones are held back here until one has its own."""
HELP = "lines are sent; /steer TEXT stops what runs and is heard at once, /stop stops it, /quit leaves"
STOPPED = "stopped in the chat"


def chat(
    screen: RichScreen, *, path: Path | None, state_dir: Path | None, tree_id: str | None, session: str
) -> int:
    """Send lines to a session and show its replies; return the exit code.

    What is said on the session's channel is shown too, and every request of the tree that waits for a person
    is asked; a line then answers it. Ends with the input once every reply is there, with ``/quit``, or when
    the session ends or its tree is let go.

    Args:
        screen: Where it is shown.
        path: The workspace; None = this directory.
        state_dir: Where the journal lies; None = the workspace's own place.
        tree_id: The tree; None = the only one that is open.
        session: The session's path.

    Raises:
        TreeNotFound, SessionClosed: nobody has the tree open, or tree or session have ended.
        SessionNotFound: it has no such session.
        JournalError: there is no journal, or it can't be read.
        ConfigError: several trees are open and none is named.
    """
    place = state_dir_of(path, state_dir)
    asyncio.run(_talk(screen, place, tree_id, session))
    return 0


async def _talk(screen: RichScreen, place: Path, tree_id: str | None, session: str) -> None:
    place = await live_journal(place, tree_id)
    client = await ControlClient.find(place)
    if client is None:
        await open_tree(None, place, tree_id)
        return
    async with client:
        tree = await open_tree(client, place, tree_id)
        report = await client.report(tree, session)
        if report.status.is_final:
            raise SessionClosed(session, f"it ended {report.status}; there is nobody to talk to")
        await _Talk(client, screen, place, tree, session).run()


class _Talk:
    """One person, one session."""

    def __init__(
        self, client: ControlClient, screen: RichScreen, place: Path, tree_id: str, session: str
    ) -> None:
        self._client = client
        self._screen = screen
        self._place = place
        self._tree_id = tree_id
        self._session = session
        self._answering = Answering(client, screen)
        self._sending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MOST_SENT)
        self._showing = asyncio.Lock()
        self._shown_seq = 0
        self._shown_keys: set[str] = set()

    async def run(self) -> None:
        """Talk until there is nobody to talk to, or nothing more to say."""
        self._screen.line(f"tree {self._tree_id}, {self._session}: {HELP}")
        try:
            with TypedLines(sys.stdin) as typed:
                after_seq = await self._answering.begin(self._tree_id)
                self._shown_seq = await self._client.last_seq(self._tree_id)
                await run_jobs(self._hear(typed), self._heed(after_seq))
        finally:
            for task in self._sending:
                task.cancel()
            if self._sending:
                await asyncio.wait(self._sending)

    async def _hear(self, typed: TypedLines) -> bool:
        while (line := await typed.next()) is not None:
            word, _, rest = line.strip().partition(" ")
            if word == "/stop":  # whatever is asked just now
                self._beside(self._stop(rest.strip() or STOPPED))
                continue
            if await self._answering.take(line) or not line.strip():
                continue
            if word == "/quit":
                return True
            if word == "/steer" and rest.strip():
                self._send(rest.strip(), "steer")
            elif word.startswith("/"):
                self._screen.line(f"({word} is no command: {HELP})")
            else:
                self._send(line, "follow_up")
        if not self._answering.is_done:
            self._screen.line("(the input ended: what is asked stays open)")
        await self._replied()
        return True

    async def _replied(self) -> None:
        """Wait until every message has its reply, or the reason why there is none."""
        if self._sending:
            await asyncio.wait(self._sending)

    def _send(self, text: str, mode: SendMode) -> None:
        self._beside(self._say(text, mode))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _stop(self, reason: str) -> None:
        try:
            await self._client.interrupt(self._tree_id, self._session, reason)
        except SessionTreeError as error:
            self._screen.line(f"(not stopped: {type(error).__name__}: {error})")
            return
        self._screen.line(f"({self._session} has stopped; it hears what you say next)")

    async def _say(self, text: str, mode: SendMode) -> None:
        async with self._slots:
            try:
                reply = await self._client.send(
                    self._tree_id, self._session, text, mode, secrets.token_hex(16)
                )
            except SessionTreeError as error:
                self._screen.line(f"(no reply: {type(error).__name__}: {error})")
                return
        if reply.error is None:
            await self._show_calls()
        for line in reply.text.splitlines():
            self._screen.line(line)
        if reply.error is not None:
            self._screen.line(f"(no reply: {reply.error})")

    async def _show_calls(self) -> None:
        """Show what tools of the session said to people since this was done last."""
        async with self._showing:
            try:
                newest = await self._client.last_seq(self._tree_id)
                record = await self._client.record_of(self._tree_id, self._session, self._shown_seq)
            except SessionTreeError:
                return  # the tree was let go: its end is told elsewhere
            told = [fact_of(text) for text in record.facts if kind_in(text) == "call_resolved"]
            for fact in told:
                display = display_of(fact.message)
                if display is not None and fact.key not in self._shown_keys:
                    self._screen.line(f"({fact.message.tool_name}: {display})")
            # What became durable between both questions comes again with the next.
            self._shown_seq, self._shown_keys = newest, {fact.key for fact in told}

    async def _heed(self, after_seq: int) -> bool:
        last_words = ""
        async for fact in news_of(self._client, self._tree_id, after_seq):
            await self._answering.heed(self._tree_id, fact)
            if isinstance(fact, ChannelSaid) and fact.channel == self._session:
                for line in fact.text.splitlines():
                    self._screen.line(f"{fact.session}: {line}")
            elif isinstance(fact, SessionEnded) and fact.session == self._session:
                last_words = f"({self._session} ended {fact.status})"
                break
        await self._replied()
        self._screen.line(last_words or await asyncio.to_thread(self._last_words))
        return True

    def _last_words(self) -> str:
        """Return how the session stands in the journal: its runtime may end before its last news is heard."""
        with contextlib.suppress(JournalError), Journal.open(self._place, read_only=True) as journal:
            status = portrait_of(journal, self._tree_id).state.sessions[self._session].status
            if status.is_final:
                return f"({self._session} ended {status})"
        return f"(tree {self._tree_id} was let go; resume it to go on)"
