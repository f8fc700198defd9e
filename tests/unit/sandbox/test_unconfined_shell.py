"""Commands without confinement: what their launcher reports of a start that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.jobs import WindowSize
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.commands.running_commands import RunningCommands
from sessiontree.sandbox.commands.unconfined_shell import UnconfinedShell


@pytest.mark.parametrize("window", [None, WindowSize(5, 40)], ids=["pipe", "terminal"])
@pytest.mark.parametrize("workdir", ["missing", "line\nend", "é" * 800])
async def test_missing_directory_is_named(tmp_path: Path, workdir: str, window: WindowSize | None) -> None:
    """The error says why the command was not started, and not that it may have run."""
    shell = UnconfinedShell(tmp_path, RunningCommands(1.0, None))
    with pytest.raises(ExecutionError, match=r"was not started: \[Errno"):
        await shell.run("true", workdir=workdir, timeout_s=30, channel=CommandChannel(window=window))
