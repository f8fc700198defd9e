"""The feed: a viewer gets news at once, then in measured steps, and everything in the end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sessiontree.view.feed import EVERY_S, TreeFeed, Viewer
from tests.unit.view.live_strategies import charged, record, spawned
from tests.unit.view.view_fixtures import config_of


def _feed(sessions: int = 3) -> TreeFeed:
    feed = TreeFeed(config_of())
    feed.take(record(1, spawned("main")))
    for number in range(sessions):
        feed.take(record(2 + number, spawned(f"main/w{number}", "main")))
    return feed


async def _told(viewer: Viewer) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(await viewer.get_next_news())
    return told


async def test_viewer_is_told_at_once_and_then_paced() -> None:
    """A thousand facts between two looks are one delta, and the looks are a tenth of a second apart."""
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        for number in range(1_000):
            feed.take(record(100 + number, charged("main/w1", 1, 0.0)))

    feed = _feed()
    viewer = Viewer(feed, wait=wait)
    assert (await _told(viewer))["kind"] == "snapshot"
    assert not waits
    delta = await _told(viewer)
    assert [row[1][0] for row in delta["rows"]] == ["main", "main/w1"]
    assert len(waits) == 1
    assert 0 < waits[0] <= EVERY_S


async def test_viewer_without_news_waits() -> None:
    """Nothing is sent while nothing happens; one fact wakes all viewers, who share one answer."""
    feed = _feed()
    viewers = [Viewer(feed, feed.id, feed.tree.revision) for _ in range(3)]
    waiting = [asyncio.create_task(viewer.get_next_news()) for viewer in viewers]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    feed.take(record(9, charged("main/w1", 1, 0.0)))
    answers = [await task for task in waiting]
    assert answers[0] is answers[1] is answers[2]


async def test_revision_that_is_no_use_leads_to_a_snapshot() -> None:
    """Of another feed, of the future, or of a feed before the tree was let go."""
    feed = _feed()
    for known, revision in (("", 0), ("0" * 16, 1), (feed.id, 10**9), (feed.id, -1)):
        assert (await _told(Viewer(feed, known, revision)))["kind"] == "snapshot"
    viewer = Viewer(feed, feed.id, feed.tree.revision)
    feed.set_live(True, ["approve"])
    told = await _told(viewer)
    assert (told["kind"], told["can"]) == ("snapshot", ["approve"])
