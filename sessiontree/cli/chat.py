"""Chat: what ``sessiontree chat`` does: a person talks to a session of a live tree."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from sessiontree import ConfigError, SessionTree
from sessiontree.api.agents.approval_modes import describe_rights
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.cli.approvals import ApprovalPrompt
from sessiontree.cli.configured_tree import (
    build_tree_options,
    check_workspace,
    find_app,
    load_configuration,
    spare_tools,
)
from sessiontree.cli.connect import find_live_journal, follow_facts, open_tree
from sessiontree.cli.edited_lines import EditedLines, PromptedScreen, is_editable
from sessiontree.cli.reply_text import ReplyText
from sessiontree.cli.screen import FAILED, RichScreen
from sessiontree.cli.serve import serve_page
from sessiontree.cli.tree import complete_tree_id, find_journal, find_state_dir, read_tree
from sessiontree.cli.typed_lines import TypedLines, run_jobs
from sessiontree.contracts.errors import JournalError, SessionClosed, SessionTreeError
from sessiontree.contracts.facts.stimuli import SendMode
from sessiontree.contracts.facts.tree_facts import ChannelSaid, SessionEnded
from sessiontree.contracts.reports.events import get_display
from sessiontree.control.client import ControlClient
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import read_kind
from sessiontree.journal.replay import read_config, read_fact
from sessiontree.runtime.transport.progress import ProgressReader

MAX_SENT = 16
"""Maximum messages that wait for replies; later messages are held back until a reply arrives."""
PURPOSE = "chat"
HELP = "lines are sent; /steer TEXT stops what runs and is read at once, /stop stops it, /quit leaves"
STOPPED = "stopped in the chat"


def chat(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    path: Path | None,
    state_dir: Path | None,
    tree_id: str | None,
    session: str,
    model: str | None,
    agent: str | None,
    config: Path | None,
    backend: BackendName,
    view: bool,
) -> int:
    """Send lines to a session and show its replies; return the exit code.

    At a terminal lines are edited with readline, and replies of a tree of the command's own are shown as they
    come. What is said on the session's channel is shown too, and every request of the tree that waits for a
    person is asked; a line then answers it. Ends with the input once every reply is there, with ``/quit``, or
    when the session ends or its tree is let go. With a model, an agent or a configuration a tree is opened
    here, or resumed if one is named.

    Args:
        screen: Where it is shown.
        path: The workspace; None = this directory.
        state_dir: Where the journal is; None = the workspace's own place.
        tree_id: The tree; None = the only one that is open.
        session: The session's path.
        model: Name of the model of an own tree; None = the configured one, or the resumed tree's.
        agent: Name of the agent that Main of a new tree runs as.
        config: The configuration's file; None = the owner's own.
        backend: What runs the sessions of an own tree.
        view: Whether a page shows the tree, too.

    Raises:
        TreeNotFound, SessionClosed: nobody has the tree open, or tree or session have ended.
        SessionNotFound: it has no such session.
        JournalError: the journal does not exist or can't be read.
        ConfigError: several trees are open and none is named.
    """
    if model is None and agent is None and config is None:
        return asyncio.run(_talk(screen, find_state_dir(path, state_dir), tree_id, session, view=view))
    if tree_id is not None and agent is not None:
        raise ConfigError("--agent is for a new tree; leave out --agent or --tree")
    if tree_id is None and session != "main":
        raise ConfigError(
            f"a new tree has no session {session!r}; leave out --session, or name a tree by --tree"
        )
    root = check_workspace(path)
    opened = _make_opener(root, state_dir, tree_id, model=model, agent=agent, config=config, backend=backend)
    again = [("--config", None if config is None else str(config.absolute())), ("--model", model)]
    options = "".join(f" {name} {shlex.quote(value)}" for name, value in again if value is not None)
    return asyncio.run(_talk_in(screen, opened, session, options, view=view))


def _make_opener(
    root: Path,
    state_dir: Path | None,
    tree_id: str | None,
    *,
    model: str | None,
    agent: str | None,
    config: Path | None,
    backend: BackendName,
) -> Callable[[], Awaitable[SessionTree]]:
    """Return what opens a tree of the command's own: a new one, or the one that is named."""
    configured = load_configuration(config, root)
    if tree_id is None:
        options = build_tree_options(configured, model=model, agent=agent, approve=None, has_person=True)
        spare_tools(options)
        tree = SessionTree(root, **options, state_dir=state_dir, backend=backend, purpose=PURPOSE)
        return tree.start
    place = find_state_dir(root, state_dir)
    tree_id = complete_tree_id(place, tree_id)
    with Journal.open(find_journal(place, tree_id), read_only=True) as journal:
        was = read_config(journal.row0(tree_id))
    app = find_app(configured, was.model, model)

    async def resume_tree() -> SessionTree:
        return await SessionTree.resume(tree_id, app, state_dir=place, backend=backend)

    return resume_tree


async def _talk_in(
    screen: RichScreen,
    opened: Callable[[], Awaitable[SessionTree]],
    session: str,
    options: str,
    *,
    view: bool,
) -> int:
    async with await opened() as tree:
        tree.approvals.pending()  # this program listens: it asks in the chat
        try:
            reader = tree.progress(session)
            try:
                return await _talk(screen, tree.state_dir, tree.tree_id, session, reader, view=view)
            finally:
                reader.close()
        finally:
            if not tree.main.status().status.is_final:
                place = shlex.quote(str(tree.state_dir))
                model = options or f" --model {tree.main.status().model}"
                again = f"sessiontree chat --tree {tree.tree_id} --state-dir {place}{model}"
                screen.line(f"(go on with: {again})")


async def _talk(
    screen: RichScreen,
    place: Path,
    tree_id: str | None,
    session: str,
    reader: ProgressReader | None = None,
    *,
    view: bool,
) -> int:
    tree_id = complete_tree_id(place, tree_id)
    place = await find_live_journal(place, tree_id)
    client = await ControlClient.find(place)
    if client is None:
        await open_tree(None, place, tree_id)  # says what is wrong
        return FAILED
    async with client:
        tree = await open_tree(client, place, tree_id)
        report = await client.supervisor.report(tree, session)
        if report.status.is_final:
            raise SessionClosed(session, f"it ended as {report.status} and takes no more messages")
        typed: TypedLines | EditedLines = TypedLines(sys.stdin)
        if is_editable():
            typed = EditedLines()
            screen = PromptedScreen(typed)
        else:
            reader = None
        talk = _Talk(client, screen, place, tree, session, reader)
        async with serve_page(place, tree, screen.line, is_wanted=view):
            return await talk.run(typed, describe_rights(report))


class _Talk:
    """One person, one session."""

    def __init__(
        self,
        client: ControlClient,
        screen: RichScreen,
        place: Path,
        tree_id: str,
        session: str,
        reader: ProgressReader | None,
    ) -> None:
        self._client = client
        self._screen = screen
        self._place = place
        self._tree_id = tree_id
        self._session = session
        self._reader = reader
        """The session's events, if its replies are shown as they come."""
        self._heard = ReplyText(screen.line)
        self._prompt = ApprovalPrompt(client, screen)
        self._sending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_SENT)
        self._showing = asyncio.Lock()
        self._shown_seq = 0
        self._shown_keys: set[str] = set()
        self._sent = 0
        """Number of messages."""
        self._is_answered = True
        """Whether the last of them has a reply."""
        self._has_ended = False
        """Whether the input has ended."""

    async def run(self, typed: TypedLines | EditedLines, rights: str) -> int:
        """Run until the session ends or the input is used up; return the exit code.

        Args:
            typed: What the person types.
            rights: What the session may do without a person, for the first line.
        """
        self._screen.line(f"tree {self._tree_id}, {self._session}: {rights}; {HELP}")
        try:
            with typed:
                after_seq = await self._prompt.begin(self._tree_id)
                self._shown_seq = await self._client.supervisor.last_seq(self._tree_id)
                await run_jobs(self._hear(typed), self._heed(after_seq), self._listen())
        finally:
            for task in self._sending:
                task.cancel()
            if self._sending:
                await asyncio.wait(self._sending)
        return FAILED if self._has_ended and not self._is_answered else 0

    async def _listen(self) -> bool:
        """Show replies as they come."""
        if self._reader is not None:
            async for progress in self._reader:
                self._heard.take(progress.event)
        return False

    async def _is_shown(self, text: str) -> bool:
        """Return whether a reply was shown as it came."""
        if self._reader is None:
            return False
        await self._reader.catch_up()
        for progress in self._reader.drain():
            self._heard.take(progress.event)
        return text != "" and self._heard.last == text

    async def _hear(self, typed: TypedLines | EditedLines) -> bool:
        while (line := await typed.next()) is not None:
            word, _, rest = line.strip().partition(" ")
            if word == "/stop":  # whatever is asked just now
                self._run_beside(self._stop(rest.strip() or STOPPED))
                continue
            if await self._prompt.take(line) or not line.strip():
                continue
            if word == "/quit":
                return True
            if word == "/steer" and rest.strip():
                self._send(rest.strip(), "steer")
            elif word.startswith("/"):
                self._screen.line(f"({word} is not a command: {HELP})")
            else:
                self._send(line, "follow_up")
        if not self._prompt.is_done:
            self._screen.line("(the input ended: what is asked stays open)")
        self._has_ended = True
        await self._wait_for_replies()
        return True

    async def _wait_for_replies(self) -> None:
        """Wait until every message has its reply or failed."""
        if self._sending:
            await asyncio.wait(self._sending)

    def _send(self, text: str, mode: SendMode) -> None:
        self._sent += 1
        self._is_answered = False
        if isinstance(self._screen, PromptedScreen):
            self._screen.line(f"({self._session} works; /stop stops it)")
        self._run_beside(self._say(text, mode, self._sent))

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _stop(self, reason: str) -> None:
        try:
            await self._client.supervisor.interrupt(self._tree_id, self._session, reason)
        except SessionTreeError as error:
            self._screen.line(f"(not stopped: {type(error).__name__}: {error})")
            return
        self._screen.line(f"({self._session} has stopped; it continues with your next message)")

    async def _say(self, text: str, mode: SendMode, number: int) -> None:
        async with self._slots:
            try:
                reply = await self._client.supervisor.send(
                    self._tree_id, self._session, text, mode, secrets.token_hex(16)
                )
            except SessionTreeError as error:
                self._screen.line(f"(no reply: {type(error).__name__}: {error})")
                return
        if reply.error is None:
            self._is_answered = self._is_answered or number == self._sent
            await self._show_calls()
        for line in () if await self._is_shown(reply.text) else reply.text.splitlines():
            self._screen.line(line)
        if reply.error is not None:
            self._screen.line(f"(no reply: {reply.error})")

    async def _show_calls(self) -> None:
        """Show the display lines of the session's tools since the last call."""
        async with self._showing:
            try:
                newest = await self._client.supervisor.last_seq(self._tree_id)
                record = await self._client.supervisor.record_of(
                    self._tree_id, self._session, self._shown_seq
                )
            except SessionTreeError:
                return  # the tree was let go: its end is reported elsewhere
            told = [read_fact(text) for text in record.facts if read_kind(text) == "call_resolved"]
            for fact in told:
                display = get_display(fact.message)
                if display is not None and fact.key not in self._shown_keys:
                    self._screen.line(f"({fact.message.tool_name}: {display})")
            # A fact that became durable between both questions is read again with the next.
            self._shown_seq, self._shown_keys = newest, {fact.key for fact in told}

    async def _heed(self, after_seq: int) -> bool:
        last_words = ""
        async for fact in follow_facts(self._client, self._tree_id, after_seq):
            await self._prompt.take_fact(self._tree_id, fact)
            if isinstance(fact, ChannelSaid) and fact.channel == self._session:
                for line in fact.text.splitlines():
                    self._screen.line(f"{fact.session}: {line}")
            elif isinstance(fact, SessionEnded) and fact.session == self._session:
                last_words = f"({self._session} ended {fact.status})"
                break
        await self._wait_for_replies()
        self._screen.line(last_words or await asyncio.to_thread(self._read_last_words))
        return True

    def _read_last_words(self) -> str:
        """Return the session's state from the journal: its runtime may end before its last news arrives."""
        with contextlib.suppress(JournalError), Journal.open(self._place, read_only=True) as journal:
            status = read_tree(journal, self._tree_id).state.sessions[self._session].status
            if status.is_final:
                return f"({self._session} ended {status})"
        return f"(tree {self._tree_id} was let go; resume it to go on)"
