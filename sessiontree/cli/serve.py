"""The command ``sessiontree serve``, and the pages of other commands: trees in a browser, until Ctrl-C."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.cli.door import list_agents, make_conversations
from sessiontree.cli.options import load
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import complete_tree_id, find_state_dir
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.doors.tokens import TokenFile
from sessiontree.version import explain_installation


def serve(  # noqa: PLR0913 - each is an option of the command
    screen: RichScreen,
    *,
    path: Path | None,
    state_dir: Path | None,
    tree_id: str | None,
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    token_file: Path | None,
    opens: bool,
    jobs: bool,
    doors: bool,
    config: Path | None,
    backend: BackendName,
) -> int:
    """Serve the trees of a state directory, live and past ones, until interrupted; return the exit code.

    With ``jobs``, trees at rest are resumed when their timed jobs come due, by ``backend`` with the models of
    the configuration ``config``. With ``doors``, programs that have a token talk to trees there.

    Raises:
        ConfigError: the extra ``serve`` is not installed, or it can't listen there.
        JournalError: the tree that is named does not exist.
    """
    given = find_state_dir(path, state_dir)
    page = "/" if tree_id is None else f"/t/{complete_tree_id(given, tree_id)}"
    api = _make_doors(given, config, backend) if doors else None
    serving = _make_server(given, host, port, certificate, key, token_file, api=api)

    def on_ready() -> None:
        where = serving.make_page_address(page)
        screen.line(f"open {where}")
        screen.line("the address lets one browser in, once; Ctrl-C ends the server, and no tree")
        if api is not None:
            places = " and ".join(f"{serving.origin}{prefix.rstrip('/')}" for prefix in api.prefixes)
            screen.line(f"programs with a token of `sessiontree tokens create` ask at {places}")
        if opens:
            webbrowser.open(where)

    async def run() -> None:
        async with _watch_due_trees(screen, given, config, backend) if jobs else nullcontext():
            await serving.run(on_ready)

    asyncio.run(run())
    return 0


def _make_doors(state_dir: Path, config: Path | None, backend: BackendName) -> Any:
    """Return what programs with a token may ask.

    Raises:
        ConfigError: the configuration can't be used, or the extra ``serve`` is not installed.
    """
    make_guard, make_routes, make_set = (
        load(f"sessiontree.serve.{name}")
        for name in ("door_guard:DoorGuard", "door_routes:DoorRoutes", "door_set:DoorSet")
    )
    conversations = make_conversations(state_dir, config, backend)
    guard = make_guard(TokenFile(state_dir))
    doors = [make_routes(guard, conversations, list_agents(state_dir, config))]
    with suppress(ModuleNotFoundError):  # the extra mcp is not installed
        make_mcp_routes, make_door = (
            load(f"sessiontree.serve.routes.mcp_routes:{name}") for name in ("McpRoutes", "make_door")
        )
        doors.append(make_mcp_routes(guard, make_door(conversations)))
    return make_set(doors)


def _watch_due_trees(
    screen: RichScreen, state_dir: Path, config: Path | None, backend: BackendName
) -> AbstractAsyncContextManager[None]:
    """Return the context in which trees at rest are resumed for their timed jobs."""
    make_due_trees, tree_class, find_app, load_configuration = (
        load(name)
        for name in (
            "sessiontree.serve.due_trees:DueTrees",
            "sessiontree.api.tree.session_tree:SessionTree",
            "sessiontree.cli.configured_tree:find_app",
            "sessiontree.cli.configured_tree:load_configuration",
        )
    )

    async def resume_tree(place: Path, left: TreeConfig) -> Any:
        app = find_app(load_configuration(config, Path(left.workspace)), left.model, None)
        return await tree_class.resume(left.tree_id, app, state_dir=place, backend=backend)

    watched: AbstractAsyncContextManager[None] = make_due_trees(state_dir, resume_tree, screen.line).watched()
    return watched


@asynccontextmanager
async def serve_page(
    state_dir: Path, tree_id: str, say: Callable[[str], None], *, is_wanted: bool
) -> AsyncIterator[None]:
    """Serve a page of a tree, and open it in a browser, as long as a command runs the tree.

    Args:
        state_dir: Where its journal is.
        tree_id: The tree.
        say: Shows the page's address.
        is_wanted: False = nothing is served.

    Raises:
        ConfigError: the extra ``serve`` is not installed.
    """
    if not is_wanted:
        yield
        return
    serving = _make_server(state_dir)
    running = asyncio.create_task(serving.run())
    try:
        where = serving.make_page_address(f"/t/{tree_id}")
        say(f"page: {where}")
        await asyncio.to_thread(webbrowser.open, where)
        yield
    finally:
        serving.stop()
        await asyncio.wait([running])


def _make_server(state_dir: Path, *address: Any, api: Any = None) -> Any:
    """Return a server; the arguments are those of its address."""
    try:
        make_address, make_server = (
            load(f"sessiontree.serve.listen:{name}") for name in ("Address", "PageServer")
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"pages need the extra serve ({error.name} is missing): {explain_installation('serve')}"
        ) from error
    return make_server(state_dir, make_address(*address), api)
