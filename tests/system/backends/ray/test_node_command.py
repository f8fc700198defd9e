"""The actor of one command on a node: it takes input, and ends the command when it is asked to."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.backends.ray.commands.node_command import CommandNews, CommandOrder, NodeCommand


def order(command: str, workspace: Path | None = None) -> CommandOrder:
    """Return a command with an input."""
    return CommandOrder(command, workspace, ".", {}, 60.0, 1.0, 1000, None, True)


async def followed(actor: NodeCommand) -> list[CommandNews]:
    """Return all news of a command, up to its end."""
    news = [await actor.follow()]
    while news[-1].finished is None and news[-1].error is None:
        news.append(await actor.follow())
    return news


@pytest.mark.covers("S52", "JOB10")
async def test_input_waits_for_the_start(tmp_path: Path) -> None:
    """What is written before the command runs is read by it; then its input ends."""
    actor = NodeCommand()
    assert await actor.begin(order("cat; pwd", tmp_path)) is None
    assert await actor.write(b"word\n") == 5
    await actor.end_input()
    said = b"".join(each.data for each in await followed(actor)).decode().splitlines()
    assert said == ["word", str(tmp_path)]


@pytest.mark.covers("S52")
@pytest.mark.parametrize("at_once", [False, True])
async def test_command_is_stopped(tmp_path: Path, at_once: bool) -> None:
    """It is asked to end, or killed; what it says last is kept."""
    actor = NodeCommand()
    await actor.begin(order("trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.01; done", tmp_path))
    first = await actor.follow()
    while b"up" not in first.data:
        first = await actor.follow()
    await actor.stop(at_once)
    news = await followed(actor)
    assert news[-1].error is not None
    assert (b"bye" in b"".join(each.data for each in news)) is not at_once
