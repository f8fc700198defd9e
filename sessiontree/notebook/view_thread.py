"""The thread on which a notebook's kernel looks at its trees: one event loop, for all widgets and pages.

A cell can block the kernel's main thread, an async cell shares its loop, and the front end may send what a
person did to another thread still, that of a subshell. So what a widget shows and asks is handled here, on a
loop of its own: whoever hears the front end hands over and returns. This loop reads the trees' journals and
reaches the program's runtime by its control socket, as a browser does; it never touches a loop of the trees.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from sessiontree.serve.served_trees import ServedTrees

T = TypeVar("T")
END_S: Final = 5.0
"""How long the interpreter's exit waits for the trees to be let go."""


class ViewThread:
    """A loop in a thread, started by the first call and ended with the interpreter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._trees: dict[Path, ServedTrees] = {}
        self._servers: dict[Path, Any] = {}
        self._serving: dict[Path, asyncio.Task[None]] = {}

    def submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine on the loop; any thread may call this, and it does not wait.

        Args:
            make: Returns the coroutine; called on the loop.
        """

        async def run() -> T:
            return await make()

        return asyncio.run_coroutine_threadsafe(run(), self._ensure_loop())

    def get_trees(self, state_dir: Path) -> ServedTrees:
        """Return the trees of a state directory that widgets look at; call it on the loop."""
        return self._trees.setdefault(state_dir, ServedTrees(state_dir, "notebook"))

    async def open_page(self, state_dir: Path, tree_id: str) -> str:
        """Return the address of a tree's page on a server of this thread; it lets one browser in, once.

        Raises:
            ConfigError: no port can be used.
            ImportError: the extra ``serve`` is not installed.
        """
        from sessiontree.serve.listen import Address, PageServer

        server = self.find_server(state_dir, lambda: PageServer(state_dir, Address()))
        address: str = server.make_page_address(f"/t/{tree_id}")
        return address

    def find_server(self, place: Path, make: Callable[[], Any]) -> Any:
        """Return the server of a directory, which runs as long as this thread; call it on the loop.

        Args:
            place: The directory.
            make: Makes the server for the first call.
        """
        server = self._servers.get(place)
        if server is None:
            server = self._servers[place] = make()
            self._serving[place] = asyncio.create_task(server.run())
        return server

    def end(self) -> None:
        """Let all trees go and end the thread; the next call starts another one."""
        with self._lock:
            # Taken out under the lock: a widget that asks meanwhile gets a new loop and not one that is
            # ending.
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        with suppress(Exception):  # the interpreter ends: nobody could do anything about it
            asyncio.run_coroutine_threadsafe(self._let_go(), loop).result(END_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(END_S)

    def forget(self) -> None:
        """Begin again in a forked child, which does not have the thread."""
        self.__init__()  # type: ignore[misc]  # nothing of the parent's is of use

    async def _let_go(self) -> None:
        trees, self._trees = self._trees, {}
        serving = list(self._serving.values())
        for server in self._servers.values():
            server.stop()
        if serving:
            await asyncio.wait(serving)
        # Listed before the trees are closed: closing may start tasks of its own, which must not be cancelled.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for each in trees.values():
            await each.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=[loop], name="sessiontree-view", daemon=True
                )
                self._thread.start()
                atexit.register(self.end)
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


VIEWS: Final = ViewThread()
"""The only one of this process."""
os.register_at_fork(after_in_child=VIEWS.forget)
