"""Typed lines: whole lines as they come, from a pipe, a file or nowhere, and an end that stays."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path
from typing import TextIO

import pytest

from sessiontree.cli.typed_lines import TypedLines

SAID = "one\nдва\n\nlast"


def stream_of(descriptor: int) -> TextIO:
    """Return a descriptor as the stream a program has it as."""
    return os.fdopen(descriptor, encoding="utf-8")


async def all_of(typed: TypedLines) -> list[str]:
    """Return every line."""
    lines: list[str] = []
    while (line := await typed.next()) is not None:
        lines.append(line)
    assert await typed.next() is None
    return lines


@pytest.mark.parametrize("chunk", [1, 3, 1000])
async def test_pipe_is_read_as_it_is_written(chunk: int) -> None:
    """Lines do not depend on how they arrive; the last needs no end."""
    reads, writes = os.pipe()
    with stream_of(reads) as stream, TypedLines(stream) as typed:
        following = asyncio.create_task(all_of(typed))
        data = SAID.encode()
        for begin in range(0, len(data), chunk):
            os.write(writes, data[begin : begin + chunk])
            await asyncio.sleep(0)
        assert not following.done()
        os.close(writes)
        assert await following == SAID.split("\n")


async def test_file_and_a_text_are_read_at_once(tmp_path: Path) -> None:
    """What can't be waited for is there already."""
    path = tmp_path / "lines"
    path.write_text(SAID, "utf-8")
    with stream_of(os.open(path, os.O_RDONLY)) as stream, TypedLines(stream) as typed:
        assert await all_of(typed) == SAID.split("\n")
    with TypedLines(io.StringIO(SAID)) as typed:
        assert await all_of(typed) == SAID.split("\n")
    with stream_of(os.open(os.devnull, os.O_RDONLY)) as stream, TypedLines(stream) as typed:
        assert await all_of(typed) == []
    with TypedLines(None) as typed:
        assert await all_of(typed) == []


async def test_what_is_not_read_stays_where_it_was() -> None:
    """After the end of the context nothing more is taken from the stream."""
    reads, writes = os.pipe()
    with stream_of(reads) as stream:
        with TypedLines(stream) as typed:
            os.write(writes, b"one\n")
            assert await typed.next() == "one"
        os.write(writes, b"two\n")
        os.close(writes)
        assert stream.read() == "two\n"
