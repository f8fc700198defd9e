"""The command ``sessiontree acp``: an editor talks to trees over standard input and output."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.cli.configured_tree import load_configuration
from sessiontree.cli.door import list_models, make_conversations, parse_rights
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import find_state_dir
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.version import explain_installation

PRINCIPAL = "acp"
"""Names the editor in journals: sessions of one state directory belong to whoever may start this command."""


@dataclass(frozen=True, slots=True)
class _Pipes:
    """The descriptors of the protocol, which no other part of the process and no child has."""

    reads: int
    writes: int

    @classmethod
    def take(cls) -> _Pipes:
        """Take standard input and output: others print to the errors from now on, and read nothing."""
        taken = cls(os.dup(0), os.dup(1))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        return taken


def acp(  # noqa: PLR0913 - each is an option of the command
    screen: RichScreen,
    *,
    roots: Iterable[Path],
    tier: str,
    agent: str | None,
    model: str | None,
    budget_usd: float | None,
    config: Path | None,
    state_dir: Path | None,
    backend: BackendName,
) -> int:
    """Serve an editor until it closes its side; return the exit code.

    Raises:
        ConfigError: an option is wrong, the configuration can't be used, or the extra ``acp`` is missing.
    """
    pipes = _Pipes.take()
    try:
        from sessiontree.doors.acp.agent import serve_editor
        from sessiontree.doors.acp.json_lines import MessageLines
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"this command needs the extra acp ({error.name} is missing): {explain_installation('acp')}"
        ) from error
    serving = _Serving(config, state_dir, backend, model, agent)
    rights = serving.rights(tuple(roots), tier, budget_usd)

    async def run() -> None:
        reader, write = await _open_streams(pipes)
        await serve_editor(MessageLines(reader, write), serving.open_conversations, rights, serving.opened)

    return _run_until_left(run)


def _run_until_left(run: Callable[[], Awaitable[None]]) -> int:
    """Run until the editor leaves, or asks for the end by a signal."""

    async def run_until_signal() -> int:
        running = asyncio.ensure_future(run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        try:
            await running
        except asyncio.CancelledError:
            return 128 + signal.SIGTERM
        return 0

    return asyncio.run(run_until_signal())


class _Serving:
    """The trees that the command serves, by state directory.

    Args:
        config: The owner's configuration.
        state_dir: Where all trees are; None = that of each workspace.
        backend: What runs them.
        model: The model that an option names.
        agent: The agent that an option names.
    """

    def __init__(
        self,
        config: Path | None,
        state_dir: Path | None,
        backend: BackendName,
        model: str | None,
        agent: str | None,
    ) -> None:
        self._config = config
        self._state_dir = None if state_dir is None else find_state_dir(None, state_dir)
        self._backend = backend
        self._model = model
        self._agent = agent
        self._opened: dict[tuple[Path, str | None], Any] = {}

    def opened(self) -> tuple[Any, ...]:
        """Return what keeps trees so far."""
        return tuple(self._opened.values())

    def rights(self, roots: Sequence[Path], tier: str, budget_usd: float | None) -> Any:
        """Return what the editor may open.

        Raises:
            ConfigError: the tier or a directory is unknown, or the budget is not above 0.
        """
        if budget_usd is not None and not budget_usd > 0:
            raise ConfigError(f"--budget-usd {budget_usd!r} is not above 0")
        from sessiontree.doors.acp.agent import EditorRights

        first, *_ = given = [
            parse_rights(tier, each, budget_usd=budget_usd, agents=None, tools=None, approve=True)
            for each in (roots or (Path(),))
        ]
        places = tuple(Path(each.workspace) for each in given) if roots else ()
        agent = self._agent or load_configuration(self._config, Path(first.workspace)).agent or "default"
        principal = DoorPrincipal(PRINCIPAL, "editor", first)
        return EditorRights(principal, agent, self.models_of, places)

    def models_of(self, workspace: Path, agent: str) -> Any:
        """Return what may answer in sessions of an agent, first what does where nobody chooses.

        Raises:
            ConfigError: the configuration can't be used.
        """
        configured = load_configuration(self._config, workspace)
        return list_models(configured, self._model, agent)

    def open_conversations(self, workspace: Path, tree_id: str | None) -> Any:
        """Return what keeps new trees of a workspace, or those of the journal that has a tree."""
        place = self._state_dir or find_state_dir(workspace, None)
        if (place, tree_id) not in self._opened:
            from sessiontree.doors.acp.editor_session import EditorChannel

            self._opened[place, tree_id] = make_conversations(
                place,
                self._config,
                self._backend,
                model=self._model,
                tree_id=tree_id,
                channel_for=lambda principal: EditorChannel((principal.principal_id,)),
            )
        return self._opened[place, tree_id]


async def _open_streams(pipes: _Pipes) -> tuple[asyncio.StreamReader, Callable[[bytes], Awaitable[None]]]:
    """Return what reads from the editor, and what writes to it.

    Raises:
        ConfigError: the input is a file: an editor talks through a pipe.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    if stat.S_ISREG(os.fstat(pipes.reads).st_mode):
        raise ConfigError("the input is a file; an editor talks through a pipe")
    reading = os.fdopen(pipes.reads, "rb", buffering=0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), reading)
    writing = os.fdopen(pipes.writes, "wb", buffering=0)
    if stat.S_ISREG(os.fstat(pipes.writes).st_mode):

        async def write_file(line: bytes) -> None:
            writing.write(line)

        return reader, write_file
    flow = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: flow, writing)
    writer = asyncio.StreamWriter(transport, flow, None, loop)

    async def write(line: bytes) -> None:
        writer.write(line)
        await writer.drain()

    return reader, write
