"""Approvals: what ``sessiontree approvals`` shows, and how requests are answered from another process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessiontree.cli.approval_lines import SAID_NO
from sessiontree.cli.approval_prompt import Answering, decide
from sessiontree.cli.connect import news_of, open_tree
from sessiontree.cli.jobs import run_jobs
from sessiontree.cli.journal_requests import show_listed
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import journal_of, newest_tree, state_dir_of
from sessiontree.cli.typed_lines import TypedLines
from sessiontree.contracts.approvals import ApprovalAnswer
from sessiontree.contracts.errors import ApprovalClosed, ConfigError
from sessiontree.contracts.jsonable import dump_json
from sessiontree.control.client import ControlClient
from sessiontree.journal.claim import journal_dirs
from sessiontree.journal.journal import Journal


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be done with requests."""

    as_json: bool = False
    approve: str | None = None
    deny: str | None = None
    reason: str | None = None
    everything: bool = False
    """Show those that were decided, too."""
    watch: bool = False

    def check(self) -> None:
        """Check that it can be done.

        Raises:
            ConfigError: two things at once, or a reason for nothing.
        """
        chosen = [
            name
            for name, given in (
                ("--approve", self.approve),
                ("--deny", self.deny),
                ("--all", self.everything),
                ("--watch", self.watch),
            )
            if given not in {None, False}
        ]
        if len(chosen) > 1:
            raise ConfigError(f"{' and '.join(chosen)} exclude each other; give one of them")
        if self.reason is not None and self.answered is None:
            raise ConfigError("--reason says why a request is answered; give --approve or --deny with it")
        if self.watch and self.as_json:
            raise ConfigError("--watch asks a person; programs watch with `sessiontree tree --follow --json`")

    @property
    def answered(self) -> str | None:
        """The request that is to be answered."""
        return self.approve if self.approve is not None else self.deny

    @property
    def answer(self) -> ApprovalAnswer:
        """The answer it is to get."""
        if self.approve is not None:
            return ApprovalAnswer(approve=True, reason=self.reason or "")
        return ApprovalAnswer(approve=False, reason=self.reason or SAID_NO)


def approvals(
    screen: RichScreen, *, path: Path | None, state_dir: Path | None, tree_id: str | None, **wished: Any
) -> int:
    """List requests, or have them answered, and return the exit code.

    Without a tree's id those of all open trees are meant, or of the newest where no runtime is at work. With
    ``as_json`` one object is printed: ``state_dir``, ``live`` (ids of the open trees) and ``approvals``, each
    of ``tree``, ``request_id``, ``session``, ``tool``, ``arguments``, ``tier``, ``asked_by`` (whom the
    call is for; empty = the program), ``asked_at_ms``, ``decision`` (``open`` while it waits), ``by``,
    ``reason``, ``expires_at_ms``, and ``asked`` (the session whose channel shows it, null where none does).
    An answer given prints ``tree``, ``request_id`` and ``decision``.

    Args:
        screen: Where it is shown.
        path: The workspace; None = this directory.
        state_dir: Where the journal lies; None = the workspace's own place.
        tree_id: The tree; None = all that are open.
        wished: The members of :class:`Wish`.

    Raises:
        ApprovalClosed: the request to be answered was decided before, or there is none.
        TreeNotFound: nobody has the tree open, so that nothing can be answered.
        JournalError: there is no journal, no such tree, or it can't be read.
        ConfigError: the options don't fit.
    """
    wish = Wish(**wished)
    wish.check()
    place = state_dir_of(path, state_dir)
    return asyncio.run(_serve(screen, place, tree_id, wish))


async def _serve(screen: RichScreen, place: Path, tree_id: str | None, wish: Wish) -> int:
    dirs = journal_dirs(place) if tree_id is None else (journal_of(place, tree_id),)
    async with contextlib.AsyncExitStack() as stack:
        clients: dict[Path, ControlClient] = {}
        for each in dirs or (place,):
            client = await ControlClient.find(each)
            if client is not None:
                clients[each] = await stack.enter_async_context(client)
        live = {each: await client.open_trees() for each, client in clients.items()}
        if len(live) > 1:
            live = {each: trees for each, trees in live.items() if trees} or live
        everybody = [tree for trees in live.values() for tree in trees]
        if wish.answered is not None:
            chosen = await _asked_in(clients, live, wish.answered)
            client, trees = await _reached(clients, live, place, tree_id, chosen)
            if tree_id is None and chosen is not None:
                check_nonces(chosen, trees)
            await _answer(screen, client, trees, wish)
        elif wish.watch or (everybody and _at_terminal() and not wish.as_json and not wish.everything):
            if wish.watch and len(live) > 1:
                raise ConfigError(f"{len(live)} programs are at work, name a tree: {', '.join(everybody)}")
            for chosen in (*live,) or (None,):
                client, trees = await _reached(clients, live, place, tree_id, chosen)
                await _ask(screen, client, trees, stays=wish.watch)
        else:
            meant = live if tree_id is None and everybody else _named(place, tree_id)
            show_listed(screen, place, meant, everybody, wish.as_json, wish.everything)
    return 0


async def _asked_in(
    clients: Mapping[Path, ControlClient], live: Mapping[Path, Sequence[str]], request_id: str
) -> Path | None:
    """Return the journal of the program where a request waits, else the first of those at work."""
    for each, trees in live.items():
        for tree in trees:
            if await clients[each].shown(tree, request_id) is not None:
                return each
    return next(iter(live), None)


async def _reached(
    clients: Mapping[Path, ControlClient],
    live: Mapping[Path, Sequence[str]],
    place: Path,
    tree_id: str | None,
    chosen: Path | None,
) -> tuple[ControlClient, Sequence[str]]:
    """Return the program at work over a journal, and which of its trees are meant.

    Raises:
        SessionTreeError: there is none; says why.
    """
    client = None if chosen is None else clients[chosen]
    trees = () if chosen is None else live[chosen]
    if client is None or tree_id is not None or not trees:
        trees = [await open_tree(client, chosen or journal_of(place, tree_id), tree_id)]
    assert client is not None  # noqa: S101 - without a client no tree is open
    return client, trees


def _at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


async def _answer(screen: RichScreen, client: ControlClient, trees: Sequence[str], wish: Wish) -> None:
    """Answer the one request that is named."""
    request_id = wish.answered or ""
    shown = {tree: await client.shown(tree, request_id) for tree in trees}
    waiting = [tree for tree, request in shown.items() if request is not None]
    if len(waiting) > 1:
        raise ConfigError(f"{request_id} waits in {len(waiting)} trees; name one of them with --tree")
    closed = ApprovalClosed(request_id, "unknown to this runtime")
    for tree in waiting or trees:
        try:
            said = await decide(client, tree, request_id, wish.answer, shown[tree])
        except ApprovalClosed as error:
            closed = closed if "unknown" in error.state else error
            continue
        decision = "approved" if wish.answer.approve else "denied"
        if wish.as_json:
            screen.raw(dump_json({"tree": tree, "request_id": request_id, "decision": decision}))
        else:
            screen.line(said)
        return
    raise closed


async def _ask(screen: RichScreen, client: ControlClient, trees: Sequence[str], *, stays: bool) -> None:
    """Ask a person about what waits, and with ``stays`` about what comes, until nobody can be answered."""
    answering = Answering(client, screen, names_trees=len(trees) > 1)
    with TypedLines(sys.stdin) as typed:
        after = {tree: await answering.begin(tree) for tree in trees}
        if answering.is_done:
            screen.line("nothing waits for an answer" + ("; what comes is asked here" if stays else ""))
        if stays or not answering.is_done:
            vigil = _Vigil(screen, client, answering, stays)
            await run_jobs(vigil.hear(typed), vigil.follow(after))


class _Vigil:
    """A person and some trees, heard at the same time."""

    def __init__(self, screen: RichScreen, client: ControlClient, answering: Answering, stays: bool) -> None:
        self._screen = screen
        self._client = client
        self._answering = answering
        self._stays = stays

    @property
    def _is_over(self) -> bool:
        return self._answering.is_done and not self._stays

    async def hear(self, typed: TypedLines) -> bool:
        """Take lines until everything is answered, or no more are typed."""
        while not self._is_over and (line := await typed.next()) is not None:
            if not await self._answering.take(line):
                self._screen.line("(nothing is asked now)")
        return True

    async def follow(self, after: Mapping[str, int]) -> bool:
        """Follow all trees until everything is answered, or all were let go."""
        await run_jobs(*(self._heed(tree_id, seq) for tree_id, seq in after.items()))
        return True

    async def _heed(self, tree_id: str, after_seq: int) -> bool:
        async for fact in news_of(self._client, tree_id, after_seq):
            await self._answering.heed(tree_id, fact)
            if self._is_over:
                return True
        self._screen.line(f"(tree {tree_id} was let go: nobody there can be answered any more)")
        return False


def check_nonces(place: Path, trees: Sequence[str]) -> None:
    """Refuse to look for a request where its id could be one that another tree has shown.

    Raises:
        ConfigError: a tree is of a release whose ids are the same in every tree.
    """
    with Journal.open(place, read_only=True) as journal:
        for tree in trees:
            if not journal.row0(tree).get("nonce"):
                reason = "request ids of its release are the same in every tree"
                raise ConfigError(
                    f"tree {tree} was made by an earlier release: {reason}; name it with --tree"
                )


def _named(place: Path, tree_id: str | None) -> dict[Path, list[str]]:
    directory = journal_of(place, tree_id)
    if tree_id is not None:
        return {directory: [tree_id]}
    with Journal.open(directory, read_only=True) as journal:
        return {directory: [newest_tree(journal, directory)]}
