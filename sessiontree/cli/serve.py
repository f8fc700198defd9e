"""The command ``sessiontree serve``, and the pages of other commands: trees in a browser, until Ctrl-C."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import complete_tree_id, find_state_dir
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.tree_config import TreeConfig
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
    from sessiontree.cli.door import list_agents, make_conversations  # `run` and `chat` have pages, no doors
    from sessiontree.doors.tokens import TokenFile
    from sessiontree.serve.routes.door_guard import DoorGuard
    from sessiontree.serve.routes.door_routes import DoorRoutes
    from sessiontree.serve.routes.door_set import DoorSet
    from sessiontree.serve.server import Api

    conversations = make_conversations(state_dir, config, backend)
    guard = DoorGuard(TokenFile(state_dir))
    doors: list[Api] = [DoorRoutes(guard, conversations, list_agents(state_dir, config))]
    with suppress(ModuleNotFoundError):  # the extra mcp is not installed
        from sessiontree.serve.routes.mcp_routes import McpRoutes, make_door

        doors.append(McpRoutes(guard, make_door(conversations)))
    return DoorSet(doors)


def _watch_due_trees(
    screen: RichScreen, state_dir: Path, config: Path | None, backend: BackendName
) -> AbstractAsyncContextManager[None]:
    """Return the context in which trees at rest are resumed for their timed jobs."""
    from sessiontree.api.tree.session_tree import SessionTree
    from sessiontree.cli.configured_tree import find_app, load_configuration
    from sessiontree.serve.due_trees import DueTrees

    async def resume_tree(place: Path, left: TreeConfig) -> Any:
        app = find_app(load_configuration(config, Path(left.workspace)), left.model, None)
        return await SessionTree.resume(left.tree_id, app, state_dir=place, backend=backend)

    return DueTrees(state_dir, resume_tree, screen.line).watched()


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
        from sessiontree.serve.listen import Address, PageServer
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"pages need the extra serve ({error.name} is missing): {explain_installation('serve')}"
        ) from error
    return PageServer(state_dir, Address(*address), api)
