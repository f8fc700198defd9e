"""What a view costs: a page of a recorded tree, a page of a live one, and viewers of a running program.

Recorded: a journal of 10,000 sessions, each with a task, two turns and a call. Timed: opening it until its
first rows are known, and until all facts are in the model; a snapshot as JSON; and in Chromium the first
contentful paint, the time until the first rows and until all are there, and frames a second while the list
scrolls for two seconds, by 40 pixels a frame and by 3,000. The server is in a process of its own.

Live: 200 Workers stream on the local backend, each reply in pieces. For each fact: from the time at which it
was made to the frame in which a page shows the first news that hold it. Bytes a second to one viewer, and MiB
that each of 20 viewers adds to the server.

Viewers: the same work of 40 turns without a viewer, with one and with ten, in turn; the ratio of medians.

Kernel: the time in which a notebook's kernel answers while 200 sessions stream on the loop of its cells.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import Browser, Page, async_playwright

from benchmarks.report import Options, percentile, read_options, show
from benchmarks.view_kernel import measure_kernel
from benchmarks.view_tree import TREE_ID, record_tree
from sessiontree import AsyncFunctionModel, FunctionModel, Limits, ModelRequest, SessionTree, script_call
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.journal import Journal
from sessiontree.models.answers import Answer
from sessiontree.serve.served_tree import ServedTree

SCROLL_S = 2.0
CHROMIUM = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
COUNT_FRAMES = """async ([seconds, step]) => {
  const grid = document.querySelector("session-tree").shadowRoot.querySelector(".grid");
  const began = performance.now();
  let frames = 0, last = began, longest = 0;
  while (performance.now() - began < seconds * 1000) {
    grid.scrollTop += step;
    if (grid.scrollTop + grid.clientHeight >= grid.scrollHeight - 1) grid.scrollTop = 0;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    frames += 1;
  }
  return [frames / ((last - began) / 1000), longest, grid.scrollTop];
}"""
NOTE_NEWS = """() => {
  window.shown = [];
  const Own = window.EventSource;
  window.EventSource = class extends Own {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", (event) => {
        const { seq } = JSON.parse(event.data);
        const note = () => window.shown.push([seq, Date.now(), event.data.length]);
        requestAnimationFrame(() => requestAnimationFrame(note));
      });
    }
  };
}"""


@asynccontextmanager
async def serving(state_dir: Path) -> AsyncIterator[tuple[str, int]]:
    """Serve a state directory in another process; yield the address of the list, and the process's id."""
    command = (sys.executable, "-m", "sessiontree.cli", "serve", "--state-dir", str(state_dir))
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert server.stdout is not None
        line = (await server.stdout.readline()).decode()
        yield line.split()[1], server.pid
    finally:
        server.terminate()
        await server.wait()


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """Start Debian's Chromium without a screen."""
    found = shutil.which("chromium")
    assert found, "install the package chromium"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=list(CHROMIUM))
        try:
            yield browser
        finally:
            await browser.close()


async def open_page(browser: Browser, address: str, tree_id: str) -> Page:
    """Open the page of a tree in a new context; return once rows are there."""
    page = await browser.new_page(viewport={"width": 1280, "height": 800})
    await page.goto(address.replace("/?", f"/t/{tree_id}?"))
    await page.locator("session-tree .row").first.wait_for()
    return page


async def measure_recorded(sessions: int) -> dict[str, Any]:
    """Return what a recorded tree of so many sessions costs."""
    place = Path(tempfile.mkdtemp(prefix="sessiontree-view-"))
    try:
        facts = await record_tree(place, sessions)
        tree = ServedTree(place, TREE_ID, "browser")
        began = time.perf_counter()
        await tree.open()
        opened = time.perf_counter()
        await tree.wait_until_whole()
        whole = time.perf_counter()
        text = dump_json(tree.feed.snapshot())
        told = time.perf_counter()
        await tree.close()
        figures: dict[str, Any] = {
            "sessions": sessions,
            "facts": facts,
            "open_s": opened - began,
            "whole_s": whole - began,
            "snapshot_ms": (told - whole) * 1000,
            "snapshot_kib": len(text) / 1024,
        }
        async with serving(place) as (address, _), browsing() as browser:
            context = await browser.new_context(viewport={"width": 1280, "height": 800})
            page = await context.new_page()
            await page.goto(address)  # lets the browser in; the tree's page comes cold
            began = time.perf_counter()
            await page.goto(f"{address.partition('/?')[0]}/t/{TREE_ID}")
            await page.locator("session-tree .row").first.wait_for()
            figures["rows_s"] = time.perf_counter() - began
            await page.get_by_text("recorded", exact=True).wait_for()
            figures["all_rows_s"] = time.perf_counter() - began
            paints = await page.evaluate(
                "() => performance.getEntriesByName('first-contentful-paint').map((each) => each.startTime)"
            )
            figures["first_paint_s"] = paints[0] / 1000
            for name, step in (("", 40), ("fast_", 3_000)):
                rate, longest, scrolled = await page.evaluate(COUNT_FRAMES, [SCROLL_S, step])
                assert scrolled > 0, "the list did not scroll"
                figures |= {f"{name}frames_per_s": rate, f"{name}longest_frame_ms": longest}
        return figures
    finally:
        shutil.rmtree(place)


async def _look(request: ModelRequest) -> Answer:
    """Look, once a second, again and again; Main says nothing."""
    await asyncio.sleep(1.0 if request.turn > 1 else random.random())
    return [script_call("read", path="a.txt")] if request.session_id != "main" else "ready"


async def measure_live(sessions: int, seconds: float) -> dict[str, Any]:
    """Return how long news of a live tree take to be seen, and what they weigh."""
    place = Path(tempfile.mkdtemp(prefix="sessiontree-view-"))
    (place / "workspace").mkdir()
    (place / "workspace" / "a.txt").write_text("one\ntwo\nthree\n", "utf-8")
    try:
        async with (
            SessionTree(
                place / "workspace",
                model=AsyncFunctionModel(_look),
                backend="local",
                state_dir=place / "state",
                slots=sessions + 1,
                limits=Limits(max_children=sessions, max_turns=100_000, max_repeats=None),
            ) as tree,
            serving(place / "state") as (address, pid),
            browsing() as browser,
        ):
            page = await browser.new_page(viewport={"width": 1280, "height": 800})
            await page.add_init_script(f"({NOTE_NEWS})()")
            await page.goto(address.replace("/?", f"/t/{tree.tree_id}?"))
            await page.locator("session-tree .row").first.wait_for()
            handles = [await tree.main.spawn("worker", "look") for _ in range(sessions)]
            await asyncio.sleep(2.0)
            began_ms = time.time() * 1000
            await asyncio.sleep(seconds)
            ended_ms = time.time() * 1000
            await asyncio.sleep(0.5)
            shown = await page.evaluate("() => window.shown")
            origin, cookies = address.partition("/?")[0], await page.context.cookies()
            cookie = "; ".join(f"{each['name']}={each['value']}" for each in cookies)
            grown = await _memory_of_viewers(origin, cookie, tree.tree_id, pid)
            state = tree.state_dir
            assert len(handles) == sessions
        with Journal.open(state, read_only=True) as journal:
            made = [(r.seq, r.at_ms) for r in journal.read(tree.tree_id) if began_ms <= r.at_ms < ended_ms]
        news = sorted((seq, at) for seq, at, _ in shown)
        late, place_in = [], 0
        for seq, at_ms in made:
            while place_in < len(news) and news[place_in][0] < seq:
                place_in += 1
            if place_in < len(news):
                late.append(news[place_in][1] - at_ms)
        within = [size for _, at, size in shown if began_ms <= at < ended_ms]
        return {
            "sessions": sessions,
            "facts_per_s": len(made) / seconds,
            "news_per_s": len(within) / seconds,
            "event_to_pixel_p50_ms": percentile(late, 50),
            "event_to_pixel_p95_ms": percentile(late, 95),
            "bytes_per_s": sum(within) / seconds,
            "mib_per_viewer": grown,
        }
    finally:
        shutil.rmtree(place)


async def _memory_of_viewers(origin: str, cookie: str, tree_id: str, pid: int, count: int = 20) -> float:
    """Return how many MiB each of so many viewers adds to the server."""
    before = _resident_mib(pid)
    async with httpx.AsyncClient(
        base_url=origin, headers={"Cookie": cookie}, timeout=30, limits=httpx.Limits(max_connections=None)
    ) as client:
        streams = [client.stream("GET", f"/t/{tree_id}/feed") for _ in range(count)]
        for stream in streams:
            await stream.__aenter__()
        await asyncio.sleep(3.0)
        after = _resident_mib(pid)
        for stream in streams:
            await stream.__aexit__(None, None, None)
    return (after - before) / count


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _turns(request: ModelRequest) -> Answer:
    return [script_call("read", path="a.txt")] if request.turn % 41 else "done"


async def measure_viewers(rounds: int) -> dict[str, Any]:
    """Return the time of forty turns with one viewer and with ten, as ratios to that without a viewer."""
    place = Path(tempfile.mkdtemp(prefix="sessiontree-view-"))
    (place / "workspace").mkdir()
    (place / "workspace" / "a.txt").write_text("one\n", "utf-8")
    times: dict[int, list[float]] = {0: [], 1: [], 10: []}
    try:
        async with (
            SessionTree(
                place / "workspace",
                model=FunctionModel(_turns),
                backend="local",
                state_dir=place / "state",
                limits=Limits(max_turns=100_000, max_repeats=None),
            ) as tree,
            serving(place / "state") as (address, _),
            httpx.AsyncClient(follow_redirects=True, timeout=30) as client,
        ):
            await client.get(address)
            feed = f"{address.partition('/?')[0]}/t/{tree.tree_id}/feed"
            await tree.main.send("warm up")
            for _ in range(rounds):
                for count, taken in times.items():
                    reading = [asyncio.create_task(_read(client, feed)) for _ in range(count)]
                    await asyncio.sleep(0.3)
                    began = time.perf_counter()
                    await tree.main.send("work")
                    taken.append(time.perf_counter() - began)
                    for task in reading:
                        task.cancel()
                    await asyncio.sleep(0.2)
    finally:
        shutil.rmtree(place)
    alone = statistics.median(times[0])
    return {
        "forty_turns_ms": alone * 1000,
        "one_viewer": statistics.median(times[1]) / alone,
        "ten_viewers": statistics.median(times[10]) / alone,
    }


async def _read(client: httpx.AsyncClient, feed: str) -> None:
    async with client.stream("GET", feed) as stream:
        async for _ in stream.aiter_bytes():
            pass


async def measure(options: Options) -> dict[str, Any]:
    """Return all figures."""
    quick = options.quick
    return {
        "recorded": await measure_recorded(500 if quick else 10_000),
        "live": await measure_live(10 if quick else 200, 2.0 if quick else 15.0),
        "viewers": await measure_viewers(3 if quick else 15),
        "kernel": await measure_kernel(10 if quick else 200, 20 if quick else 200),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print."""
    options = read_options((__doc__ or "").partition("\n")[0], arguments)
    show(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    main()
