"""What tools with a process or a copy of their own cost: browser, background commands, patches, worktrees.

Each figure is a call of a program in a tree on the local backend: checks, journal and sandbox
are inside the clock. The bare work is what the library or program does without us in the same round;
`ratio` is the call over the bare work. Milliseconds, medians of the rounds.

- `browser_start`: the first `start` of a session; bare: Playwright starts the same Chromium unconfined.
- `browser_open`, `browser_snapshot`, `browser_screenshot`: with a browser that runs, of one small page on the
  loopback; bare: the same page by Playwright (for the snapshot, its ARIA tree).
- `process_start`: `exec` with `background` of `sleep 60`, until it answers; bare: it unconfined.
- `process_poll`: a `poll` of it; bare: a look at its state in /proc.
- `patch_1000_hunks`: one `apply_patch` with 1,000 changes of one file; bare: reading and writing that file.
- `worktree_10000_files`: a child with a workspace of its own of 10,000 files, from `spawn` to its first model
  request; bare: `git worktree add` alone. `copy_10000_files`: the same without git; bare: `cp -a`.
"""

from __future__ import annotations

import asyncio
import http.server
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Figure, Options, read_options, show
from benchmarks.rounds import Rounds
from sessiontree import AgentSpec, Limits, ScriptedModel, SessionTree, WebSettings

ROUNDS, QUICK_ROUNDS = 5, 1
HUNKS, QUICK_HUNKS = 1_000, 50
FILES, QUICK_FILES = 10_000, 200
PAGE: Final = b"<!doctype html><title>One page</title><h1>Head</h1>" + b"<p>A line of text.</p>" * 50
TOOLS: Final = ("browser", "exec", "process", "apply_patch")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the figures."""
    options = read_options((__doc__ or "").partition("\n")[0], arguments)
    show(asyncio.run(measure(options)), options)


async def measure(options: Options) -> dict[str, Figure]:
    """Return the figures of each tool: ``{name: {call, bare, ratio}}``."""
    rounds = Rounds()
    names: list[str] = []

    async def timed(name: str, call: Callable[[], Awaitable[object]]) -> None:
        began = time.perf_counter()
        await call()
        rounds.add(name, (time.perf_counter() - began) * 1000)
        if name not in names:
            names.append(name)

    files = QUICK_FILES if options.quick else FILES
    hunks = QUICK_HUNKS if options.quick else HUNKS
    for _ in range(QUICK_ROUNDS if options.quick else ROUNDS):
        rounds.begin()
        with tempfile.TemporaryDirectory(prefix="tools-") as folder:
            await _measure_browser(Path(folder, "browser"), timed)
            await _measure_process(Path(folder, "process"), timed)
            await _measure_patch(Path(folder, "patch"), timed, hunks)
            await _measure_copies(Path(folder, "copies"), timed, files)
    calls = [name for name in names if not name.endswith("_bare")]
    return {name: _row(rounds.median(name), rounds.median(f"{name}_bare")) for name in calls}


Timed = Callable[[str, Callable[[], Awaitable[object]]], Awaitable[None]]
"""Takes a name and what to time; adds the milliseconds to the round."""


def _row(call: float, bare: float) -> Figure:
    return {"call": call, "bare": bare, "ratio": call / bare}


@asynccontextmanager
async def _tree(folder: Path, **options: Any) -> AsyncIterator[SessionTree]:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    agents = {"default": AgentSpec(tools=TOOLS)}
    policy = folder / "policy.json"
    policy.write_text('{"apply_patch": {"offer": "always"}}')
    tree = SessionTree(
        workspace,
        model=ScriptedModel(["done"]),
        agents=agents,
        approvals="auto",
        policy=policy,
        backend="local",
        state_dir=folder / "state",
        **options,
    )
    async with tree:
        yield tree


@contextmanager
def _site() -> Iterator[int]:
    """Serve one page on the loopback as long as the block runs; give its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def _measure_browser(folder: Path, timed: Timed) -> None:
    from playwright.async_api import async_playwright  # noqa: PLC0415 - of an extra

    with _site() as port:
        url, web = f"http://127.0.0.1:{port}/", WebSettings(allow_private=(f"127.0.0.1:{port}",))
        async with _tree(folder, web=web) as tree:
            await timed("browser_start", lambda: tree.main.call("browser", {"action": "start"}))
            opened = {"action": "open", "url": url}
            await tree.main.call("browser", opened)
            await timed("browser_open", lambda: tree.main.call("browser", opened))
            await timed("browser_snapshot", lambda: tree.main.call("browser", {"action": "snapshot"}))
            await timed("browser_screenshot", lambda: tree.main.call("browser", {"action": "screenshot"}))
        async with async_playwright() as playwright:
            made: list[Any] = []

            async def start() -> None:
                program = shutil.which("chromium")
                made.append(await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"]))

            await timed("browser_start_bare", start)
            await (await made[0].new_page()).goto(url)
            page = await made[0].new_page()
            await timed("browser_open_bare", lambda: page.goto(url))
            await timed("browser_snapshot_bare", lambda: page.locator("body").aria_snapshot())
            await timed("browser_screenshot_bare", page.screenshot)
            await made[0].close()


async def _measure_process(folder: Path, timed: Timed) -> None:
    replies: list[Any] = []
    async with _tree(folder) as tree:

        async def start() -> None:
            replies.append(await tree.main.call("exec", {"command": "sleep 60", "background": True}))

        await timed("process_start", start)
        poll = {"action": "poll", "job_id": replies[0].details["details"]["job_id"]}
        await timed("process_poll", lambda: tree.main.call("process", poll))
    process = None

    async def start_bare() -> None:
        nonlocal process
        process = await asyncio.create_subprocess_exec("bash", "-c", "sleep 60")

    await timed("process_start_bare", start_bare)
    assert process is not None
    stat = Path("/proc", str(process.pid), "stat")
    await timed("process_poll_bare", lambda: asyncio.to_thread(stat.read_text))
    process.kill()
    await process.wait()


async def _measure_patch(folder: Path, timed: Timed, hunks: int) -> None:
    lines = [f"line {number} of the file" for number in range(hunks * 10)]
    changes = [
        f"@@\n {lines[at]}\n-{lines[at + 1]}\n+changed {at + 1}\n {lines[at + 2]}"
        for at in range(0, len(lines), 10)
    ]
    patch = "\n".join(["*** Begin Patch", "*** Update File: a.txt", *changes, "*** End Patch"])
    async with _tree(folder) as tree:
        file = folder / "workspace" / "a.txt"
        file.write_text("\n".join(lines) + "\n")
        await timed(f"patch_{hunks}_hunks", lambda: tree.main.call("apply_patch", {"patch": patch}))
        assert file.read_text().count("changed") == hunks
        await timed(f"patch_{hunks}_hunks_bare", lambda: asyncio.to_thread(file.write_text, file.read_text()))


async def _measure_copies(folder: Path, timed: Timed, files: int) -> None:
    for name in ("worktree", "copy"):
        async with _tree(folder / name, limits=Limits(max_children=4)) as tree:
            workspace = folder / name / "workspace"
            _fill(workspace, files)
            if name == "worktree":
                _git(workspace, "init", "-q")
                _git(workspace, "add", "-A")
                _git(workspace, "commit", "-q", "-m", "files")

            async def spawn(tree: SessionTree = tree) -> None:
                child = await tree.main.spawn("branch", "look", workspace="own")
                await child.result()

            await timed(f"{name}_{files}_files", spawn)
        bare = folder / name / "bare"
        command = (
            ["git", "-C", str(workspace), "worktree", "add", "-q", "--detach", str(bare)]
            if name == "worktree"
            else ["cp", "-a", str(workspace), str(bare)]
        )
        await timed(f"{name}_{files}_files_bare", lambda command=command: _run(command))  # type: ignore[misc]


def _fill(workspace: Path, files: int) -> None:
    for number in range(files):
        path = workspace / f"folder{number // 100}" / f"file{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"file {number}\n" * 20)


def _git(workspace: Path, *words: str) -> None:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *author, *words], cwd=workspace, check=True)


async def _run(command: Sequence[str]) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait():
        raise RuntimeError(f"{command[0]} failed")


if __name__ == "__main__":
    main()
