"""Runs on a local server: the list, the samples of each, two runs side by side, and the samples' trees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sessiontree import ConfigError
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.view.run_feed import RunFeed
from sessiontree.bench.view.run_pair import build_pair
from sessiontree.bench.view.run_table import RunTable
from sessiontree.bench.view.sample_content import read_sample
from sessiontree.serve.served_trees import ServedTrees
from sessiontree.serve.server import PageParts
from sessiontree.view.feed import TreeFeed

MAX_RUNS: Final = 200
"""Most runs that are shown together."""

Json = dict[str, Any]


class RunSite:
    """What a server shows of runs; nothing of them can be changed there.

    Args:
        runs: The runs, in the order of their numbers.
    """

    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        if len(runs) > MAX_RUNS:
            raise ConfigError(f"{len(runs)} runs are too many for one page; name at most {MAX_RUNS}")
        self.farewell = asyncio.Event()
        self._runs = tuple(runs)
        self._feeds: dict[int, RunFeed] = {}
        self._making = asyncio.Lock()
        self._trees = [ServedTrees(each.state_dir, may_act=False) for each in runs]
        self._parts = PageParts()

    def routes(self) -> list[Route]:
        """Return its pages and what they ask."""
        return [
            Route("/", self._parts.page("runs.html")),
            Route("/ask", self._ask, methods=["POST"]),
            Route("/r/{run:int}/ask", self._ask_run, methods=["POST"]),
            Route("/r/{run:int}", self._parts.page("runs.html")),
            Route("/r/{run:int}/feed", self._follow_run),
            Route("/r/{run:int}/t/{tree_id}", self._parts.page("runs.html")),
            Route("/r/{run:int}/t/{tree_id}/ask", self._ask_tree, methods=["POST"]),
            Route("/r/{run:int}/t/{tree_id}/feed", self._follow_tree),
            Route("/assets/{name}", self._parts.serve_asset),
        ]

    async def close(self) -> None:
        """Close all trees."""
        for each in self._trees:
            await each.close()

    async def _ask(self, request: Request) -> Response:
        return await self._parts.ask(request, self._tell)

    async def _tell(self, verb: str, given: Json) -> Json:
        if verb == "runs":
            return {"runs": [await self._read_head(number) for number in range(len(self._runs))]}
        if verb == "pair":
            first, second = (self._run(given.get(name)) for name in ("first", "second"))
            return await asyncio.to_thread(build_pair, first, second)
        raise ConfigError(f"{verb[:40]!r} is not a question about runs; ask runs or pair")

    async def _read_head(self, number: int) -> Json:
        feed = await self._get_feed(number)
        await asyncio.to_thread(feed.table.refresh)
        return feed.table.head()

    async def _ask_run(self, request: Request) -> Response:
        return await self._parts.ask(request, partial(self._tell_run, request.path_params["run"]))

    async def _tell_run(self, number: int, verb: str, given: Json) -> Json | str:
        feed = await self._get_feed(number)
        if verb == "snapshot":
            await asyncio.to_thread(feed.table.refresh)
            return await asyncio.to_thread(feed.table.dump_changes, "", 0)
        if verb == "sample":
            key = feed.table.find_key(given.get("row"))
            if key is None:
                raise ConfigError("row: give the number of a row of the run")
            return await asyncio.to_thread(read_sample, self._runs[number], *key)
        raise ConfigError(f"{verb[:40]!r} is not a question about a run; ask snapshot or sample")

    async def _follow_run(self, request: Request) -> Response:
        looking = self._look_at(request.path_params["run"])
        return await self._parts.follow(request, looking, self.farewell)

    @asynccontextmanager
    async def _look_at(self, number: int) -> AsyncIterator[RunFeed]:
        feed = await self._get_feed(number)
        feed.begin()
        try:
            yield feed
        finally:
            await feed.end()

    async def _ask_tree(self, request: Request) -> Response:
        return await self._parts.ask(request, partial(self._tell_tree, request.path_params))

    async def _tell_tree(self, place: Mapping[str, Any], verb: str, given: Json) -> Json:
        self._run(place["run"])
        told: Json = await self._trees[place["run"]].ask(place["tree_id"], verb, given)
        return told

    async def _follow_tree(self, request: Request) -> Response:
        looking = self._look_at_tree(**request.path_params)
        return await self._parts.follow(request, looking, self.farewell)

    @asynccontextmanager
    async def _look_at_tree(self, run: int, tree_id: str) -> AsyncIterator[TreeFeed]:
        self._run(run)
        async with self._trees[run].follow(tree_id) as feed:
            yield feed

    def _run(self, number: object) -> RecordedRun:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(self._runs):
            raise ConfigError(f"there is no run {number!r} here; there are {len(self._runs)}, from 0")
        return self._runs[number]

    async def _get_feed(self, number: int) -> RunFeed:
        run = self._run(number)
        async with self._making:
            if number not in self._feeds:
                self._feeds[number] = RunFeed(await asyncio.to_thread(RunTable, run, number))
            return self._feeds[number]
