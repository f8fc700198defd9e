"""What is written to a command: a writer that waits while the input is closed touches no other file."""

from __future__ import annotations

import asyncio
import os

import pytest

from sessiontree.sandbox.commands import command_channel
from sessiontree.sandbox.commands.command_channel import CommandChannel

MUCH = b"x" * 2**20
LONG_S = 30.0


def fill(descriptor: int) -> None:
    """Write until a pipe accepts nothing more."""
    os.set_blocking(descriptor, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(descriptor, MUCH)


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["late", "cancelled"])
async def test_a_number_that_is_used_again_is_still_watched(
    monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """Another pipe got the number of the closed input; its writer is woken after the first one has ended."""
    monkeypatch.setattr(command_channel, "WRITE_WITHIN_S", LONG_S if is_cancelled else 0.2)
    numbers = os.pipe()
    for number in numbers:
        os.close(number)
    channel, loop, woken = CommandChannel(takes_input=True), asyncio.get_running_loop(), asyncio.Event()
    assert channel.open_input() == numbers[0]
    writing = asyncio.create_task(channel.write(MUCH))
    await asyncio.sleep(0.05)
    channel.end_input()
    os.close(numbers[0])
    read, write = os.pipe()
    assert (read, write) == numbers
    fill(write)
    loop.add_writer(write, woken.set)
    try:
        if is_cancelled:
            writing.cancel()
        await asyncio.wait({writing})
        os.read(read, len(MUCH))
        async with asyncio.timeout(LONG_S):
            await woken.wait()
    finally:
        loop.remove_writer(write)
        os.close(read)
        os.close(write)
