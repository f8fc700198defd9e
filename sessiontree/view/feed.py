"""A feed: the model of one tree, and what its viewers get of it.

A viewer is a revision number: it asks for what changed since, and gets the newest form of each changed row
once. A slow viewer therefore costs nothing while it does not ask, and catches up in one answer. Viewers that
ask from the same revision share one answer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, Protocol

from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.transport.progress import Progress
from sessiontree.view.live_tree import LiveTree
from sessiontree.view.rows import build_delta, snapshot

EVERY_S: Final = 0.1
"""Least time between two answers to a viewer that waits."""


class NewsFeed(Protocol):
    """What viewers follow: something with a revision that grows with every change."""

    @property
    def id(self) -> str:
        """Random: news of another feed are of no use to a viewer."""

    @property
    def revision(self) -> int:
        """The newest revision."""

    async def wait_for_news(self, feed: str, revision: int) -> None:
        """Wait until there is something new for a viewer of a revision."""

    def dump_changes(self, feed: str, revision: int) -> str:
        """Return what changed as JSON text: a delta, or a snapshot if the revision is unknown here."""


class TreeFeed:
    """The model of a tree, kept up to date by whoever reads its facts.

    Args:
        config: The tree's configuration.
        can: The verbs by which viewers may act; see :mod:`sessiontree.view.content`.
        is_live: Whether a program runs the tree.
    """

    def __init__(
        self,
        config: TreeConfig,
        *,
        can: Collection[str] = (),
        is_live: bool = False,
    ) -> None:
        self.id = secrets.token_hex(8)
        """Random: a delta of another feed is of no use to a viewer."""
        self.config = config
        self.tree = LiveTree()
        self._can = tuple(can)
        self._is_live = is_live
        self._is_whole = True
        self._news = asyncio.Event()
        self._answer: tuple[tuple[int, int], str] | None = None
        """The newest delta as text, by the revisions that it leads from and to."""

    @property
    def revision(self) -> int:
        """The newest revision of the model."""
        return self.tree.revision

    def take(self, record: JournalRecord) -> None:
        """Take a fact in.

        Raises:
            JournalTooNew, JournalCorrupt: it is not a fact of this release.
        """
        self.tree.take(record)
        self._news.set()

    def see(self, progress: Progress) -> None:
        """Take an event in."""
        self.tree.see(progress.session, progress.event)
        self._news.set()

    def note_page(self, session: str) -> None:
        """Note that the file of the page on a session's canvas has changed."""
        self.tree.note_page(session)
        self._news.set()

    def set_live(self, is_live: bool, can: Collection[str] = ()) -> None:
        """Note that a program began or ceased to run the tree; viewers get a snapshot."""
        if is_live != self._is_live or tuple(can) != self._can:
            self._is_live, self._can = is_live, tuple(can)
            self.id = secrets.token_hex(8)  # what viewers may do is in a snapshot alone
            self._news.set()

    def set_whole(self, is_whole: bool) -> None:
        """Note whether all facts that there are were taken in; viewers get a snapshot."""
        if is_whole != self._is_whole:
            self._is_whole = is_whole
            self.id = secrets.token_hex(8)  # the requests that are open come with a snapshot
            self._news.set()

    def snapshot(self) -> dict[str, Any]:
        """Return the whole tree; O(sessions)."""
        return snapshot(
            self.tree,
            self.config,
            feed=self.id,
            can=self._can,
            is_live=self._is_live,
            is_whole=self._is_whole,
        )

    def is_news(self, feed: str, revision: int) -> bool:
        """Whether there is something new for a viewer of a revision."""
        return feed != self.id or self.tree.revision != revision

    async def wait_for_news(self, feed: str, revision: int) -> None:
        """Wait until there is something new for a viewer of a revision."""
        while not self.is_news(feed, revision):
            # Nothing is awaited between the look above and this line, so no change can come in between and be
            # lost.
            self._news.clear()
            await self._news.wait()

    def dump_changes(self, feed: str, revision: int) -> str:
        """Return what changed as JSON text: a delta, or a snapshot if the revision is unknown here."""
        # A viewer may have been connected to an earlier program: its numbers mean something else here.
        if feed != self.id or not 0 <= revision <= self.tree.revision:
            return dump_json(self.snapshot())
        return self._make_delta(revision)

    def _make_delta(self, since: int) -> str:
        key = (since, self.tree.revision)
        # Most viewers are at the same revision, so one text serves them all; only stragglers cost one of
        # their own.
        if self._answer is None or self._answer[0] != key:
            self._answer = (key, dump_json(self._collect_changes(since)))
        return self._answer[1]

    def _collect_changes(self, since: int) -> dict[str, Any]:
        return build_delta(self.tree, since, feed=self.id, is_live=self._is_live, is_whole=self._is_whole)


class Viewer:
    """Somebody who looks at a feed: gets the first change at once, and then news at most ten times a second.

    Args:
        feed: The feed.
        known: Id of the feed that the viewer knows; empty = none.
        revision: The revision that it has.
        wait: Waits a number of seconds.
    """

    def __init__(
        self,
        feed: NewsFeed,
        known: str = "",
        revision: int = 0,
        *,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._feed = feed
        self.known = known
        self.revision = revision
        self._wait = wait
        self._sent_s = 0.0

    async def get_next_news(self) -> str:
        """Wait for news, and return them as the JSON text of a snapshot or a delta."""
        loop = asyncio.get_running_loop()
        early_s = self._sent_s + EVERY_S - loop.time()
        if self._sent_s and early_s > 0:
            await self._wait(early_s)  # what follows in the meantime goes along
        await self._feed.wait_for_news(self.known, self.revision)
        # Text and revision are taken together, with nothing awaited: a change in between would never be sent.
        text = self._feed.dump_changes(self.known, self.revision)
        self.known, self.revision = self._feed.id, self._feed.revision
        self._sent_s = loop.time()
        return text
