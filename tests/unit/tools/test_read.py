"""``read``: pages of text, hints that lead on, and refusals that say why."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError, ImageRefused, PermissionDenied, ValidationError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.capabilities import READER
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.settings.settings import MAX_SOURCE_BYTES
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import CallSignals
from sessiontree.testing.context import call_tool, make_context
from sessiontree_tools.files.edit import Edit
from sessiontree_tools.files.find import Find
from sessiontree_tools.files.grep import Grep
from sessiontree_tools.files.read import MAX_BYTES, MAX_LINES, Read, ReadParams
from sessiontree_tools.files.write import Write

Reading = Callable[[Path, int], ToolResult]
Leftovers = Callable[[], AbstractContextManager[None]]

HINT = re.compile(r"use offset=(\d+)")
LINES = st.lists(st.text(st.sampled_from("ab é€𝄞\r\ufeff[]"), max_size=8), max_size=30)


def real_reading(root: Path, offset: int) -> ToolResult:
    """One call of the tool under test, with pages of at most 64 bytes and 7 lines."""
    ctx = make_context(root, SessionKind.WORKER, config=AgentConfig(max_result_chars=224))
    return asyncio.run(Read().execute(ReadParams(path="file", offset=offset, limit=7), ctx))


def followed(reading: Reading, root: Path) -> Iterator[ToolResult]:
    """Yield the pages of ``file``, each at the offset the last one's hint names."""
    offset: int | None = 1
    while offset is not None:
        result = reading(root, offset)
        yield result
        hint = HINT.search(str(result.output).splitlines()[-1])
        offset = int(hint[1]) if hint and _details(result)["truncated"] else None


def pages_make_the_file(reading: Reading) -> None:
    """Following the hints, the pages joined are the file, and the numbers in details are true."""

    @settings(max_examples=40, database=None, derandomize=True, phases=[Phase.generate])
    @given(LINES, st.booleans())
    def check(lines: list[str], ended: bool) -> None:
        text = "\n".join(lines) + "\n" * ended
        with tempfile.TemporaryDirectory() as root:
            (Path(root) / "file").write_text(text, "utf-8", newline="")
            pages, expected = "", 1
            for result in followed(reading, Path(root)):
                details = _details(result)
                page = str(result.output).encode()[: details["bytes"]].decode()
                assert details["first"] == (expected if text else 0)
                assert details["last"] == details["first"] + max(0, details["lines"] - 1)
                assert len(str(result.output)) <= 224
                pages += page
                expected += details["lines"]
            assert pages == text

    check()


def lose_last_line(root: Path, offset: int) -> ToolResult:
    """Bug: the hint leads one line too far."""
    result = real_reading(root, offset)
    output = HINT.sub(lambda hint: f"use offset={int(hint[1]) + 1}", str(result.output))
    return replace(result, output=output)


def repeat_first_line(root: Path, offset: int) -> ToolResult:
    """Bug: counts lines from zero."""
    return real_reading(root, max(1, offset - 1))


def fold_line_ends(root: Path, offset: int) -> ToolResult:
    """Bug: shows CRLF as LF."""
    result = real_reading(root, offset)
    return replace(result, output=str(result.output).replace("\r\n", "\n"))


def test_pages_followed_by_their_hints_make_the_file() -> None:
    """Nothing is lost, shown twice or changed between two pages."""
    pages_make_the_file(real_reading)


@pytest.mark.parametrize("bug", [lose_last_line, repeat_first_line, fold_line_ends])
def test_planted_reading_bug_is_found(bug: Reading) -> None:
    """The property fails on each broken variant."""
    with pytest.raises((AssertionError, ExecutionError)):
        pages_make_the_file(bug)


async def test_small_file_is_shown_whole_and_without_hints(tmp_path: Path) -> None:
    """The output is the text itself, CRLF and byte-order mark as they are."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_bytes("\ufeffone\r\ntwo\r\nthr€e".encode())
    result = await call_tool(Read(), make_context(tmp_path, SessionKind.WORKER), path="./notes/a.txt")
    assert result.output == "\ufeffone\r\ntwo\r\nthr€e"
    assert result.details == {
        "path": "notes/a.txt",
        "lines": 3,
        "first": 1,
        "last": 3,
        "truncated": False,
        "bytes": 20,
    }
    assert result.display == "notes/a.txt: lines 1-3"


async def test_long_file_is_cut_at_2000_lines_with_a_hint(tmp_path: Path) -> None:
    """The hint names the next line; asking for more lines than that changes nothing."""
    (tmp_path / "a").write_text("".join(f"{number}\n" for number in range(1, 2502)))
    for limit in (None, 2400):
        result = await call_tool(Read(), make_context(tmp_path), path="a", limit=limit)
        assert str(result.output).endswith("\n2000\n[… lines 1-2000 shown, more follow; use offset=2001]")
        assert _details(result)["last"] == MAX_LINES
    rest = await call_tool(Read(), make_context(tmp_path), path="a", offset=2001)
    assert str(rest.output).startswith("2001\n")
    assert str(rest.output).endswith("2501\n")


@pytest.mark.covers("S40")
async def test_long_lines_are_cut_at_50_kilobytes_of_whole_lines(tmp_path: Path) -> None:
    """A page holds as many whole lines as fit into 50 KB and into what one result may hold."""
    (tmp_path / "a").write_text(("x" * 9_999 + "\n") * 10)
    wide = make_context(tmp_path, config=AgentConfig(max_result_chars=100_000))
    assert _details(await call_tool(Read(), wide, path="a"))["bytes"] == 50_000 <= MAX_BYTES
    usual = await call_tool(Read(), make_context(tmp_path), path="a")
    assert _details(usual)["bytes"] == 30_000
    assert len(str(usual.output)) <= AgentConfig().max_result_chars


async def test_limit_cuts_and_leads_on(tmp_path: Path) -> None:
    """A window in the middle says which lines it shows."""
    (tmp_path / "a").write_text("1\n2\n3\n4\n")
    result = await call_tool(Read(), make_context(tmp_path), path="a", offset=2, limit=2)
    assert result.output == "2\n3\n[… lines 2-3 shown, more follow; use offset=4]"
    last = await call_tool(Read(), make_context(tmp_path), path="a", offset=4, limit=1)
    assert last.output == "4\n"


@pytest.mark.covers("I27")
async def test_offset_zero_is_the_first_line(tmp_path: Path) -> None:
    """Callers that count from zero get the start of the file."""
    (tmp_path / "a").write_text("1\n2\n")
    zero = await call_tool(Read(), make_context(tmp_path), path="a", offset=0)
    assert zero == await call_tool(Read(), make_context(tmp_path), path="a", offset=1)


async def test_bytes_that_are_no_utf8_are_replaced_and_said_so(tmp_path: Path) -> None:
    """A Latin-1 file can be read; the reader knows that letters are missing."""
    (tmp_path / "a").write_bytes(b"caf\xe9\nend\n")
    result = await call_tool(Read(), make_context(tmp_path), path="a")
    assert str(result.output).startswith("caf\ufffd\nend\n[not UTF-8")


async def test_empty_file_says_so(tmp_path: Path) -> None:
    """No text is not mistaken for a failure."""
    (tmp_path / "a").touch()
    result = await call_tool(Read(), make_context(tmp_path), path="a")
    assert result.output == "[the file is empty]"
    assert _details(result) == {
        "path": "a",
        "lines": 0,
        "first": 0,
        "last": 0,
        "truncated": False,
        "bytes": 0,
    }


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": "missing"}, ExecutionError, "no such file"),
        ({"path": "folder"}, ExecutionError, "directory"),
        ({"path": "binary"}, ExecutionError, "binary file of 5 bytes"),
        ({"path": "two", "offset": 3}, ExecutionError, "has 2 lines"),
        ({"path": "two", "offset": 9_000_000_000}, ExecutionError, "has 2 lines"),
        ({"path": "empty", "offset": 2}, ExecutionError, "has 0 lines"),
        ({"path": "../outside"}, PermissionDenied, "outside"),
        ({"path": "/etc/passwd"}, PermissionDenied, "outside"),
        ({"path": "two\0"}, ExecutionError, "NUL"),
        ({"path": ""}, ValidationError, "at least 1"),
        ({"path": "two", "offset": -1}, ValidationError, "greater than or equal to 0"),
        ({"path": "two", "limit": 0}, ValidationError, "greater than or equal to 1"),
        ({"path": "two", "encoding": "latin-1"}, ValidationError, "not permitted"),
        ({"offset": 1}, ValidationError, "required"),
        ({"path": 7}, ValidationError, "string"),
    ],
)
async def test_bad_reading_is_refused_with_a_reason(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Each mistake has its own typed error that says what to mend."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"ab\0cd")
    (tmp_path / "two").write_text("1\n2")
    (tmp_path / "empty").touch()
    with pytest.raises(error, match=text):
        await call_tool(Read(), make_context(tmp_path), **arguments)


@pytest.mark.covers("REL-L65")
async def test_line_of_a_gigabyte_takes_little_memory_and_time(tmp_path: Path) -> None:
    """Only the shown part is held: the line is cut, and the answer says so."""
    started = time.monotonic()
    with _long_line(tmp_path / "a", 1 << 30), _memory_below(8 << 20):
        result = await call_tool(Read(), make_context(tmp_path), path="a")
    assert re.search(r"\[line 1 is cut after \d+ bytes; use offset=2 ", str(result.output))
    assert time.monotonic() - started < 20


@pytest.mark.slow
async def test_looking_behind_a_long_line_takes_little_memory(tmp_path: Path) -> None:
    """What is before the offset is passed over piece by piece."""
    refused = pytest.raises(ExecutionError, match=r"has 1 line$")
    with _long_line(tmp_path / "a", 256 << 20), _memory_below(8 << 20), refused:
        await call_tool(Read(), make_context(tmp_path), path="a", offset=2)


async def test_sparse_file_of_ten_gigabytes_is_refused_at_once(tmp_path: Path) -> None:
    """A hole is NUL bytes, so the file is binary; its size is reported without reading it."""
    (tmp_path / "a").touch()
    os.truncate(tmp_path / "a", 10 << 30)
    started = time.monotonic()
    with pytest.raises(ExecutionError, match=f"binary file of {10 << 30} bytes"):
        await call_tool(Read(), make_context(tmp_path), path="a")
    assert time.monotonic() - started < 10


async def test_reading_ends_when_the_call_is_cancelled(tmp_path: Path, nothing_left: Leftovers) -> None:
    """A long way to the first line is not gone for a call whose time is over."""
    (tmp_path / "a").write_text("x\n" * 1000)
    signals = CallSignals(time.monotonic() + 60)
    signals.cancelled = True
    ctx = make_context(tmp_path, signals=signals)
    with nothing_left(), pytest.raises(ExecutionError, match="cancelled"):
        await call_tool(Read(), ctx, path="a", offset=900)


@contextmanager
def _long_line(path: Path, size: int) -> Iterator[None]:
    """Keep a file of one line, text first and then a hole."""
    path.write_bytes(b"x" * 100_000)
    os.truncate(path, size)
    yield
    path.unlink()


@contextmanager
def _memory_below(max_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < max_bytes
    finally:
        tracemalloc.stop()


def _details(result: ToolResult) -> dict[str, Any]:
    assert isinstance(result.details, dict)
    return result.details


async def test_image_is_shown_below_where_it_lies(tmp_path: Path) -> None:
    """By its content, not its name; what is written in a text that only begins like one is text."""
    picture = b"\x89PNG\r\n\x1a\n\0\0\0\x0d"
    (tmp_path / "shot.txt").write_bytes(picture)
    (tmp_path / "story").write_bytes(b"GIF89a is how it begins\n")
    ctx = make_context(tmp_path, SessionKind.WORKER)
    result = await call_tool(Read(), ctx, path="shot.txt", offset=5)
    assert result.output == "MEDIA:shot.txt"
    assert [base64.b64decode(image.data) for image in result.images] == [picture]
    assert result.images[0].mime_type == "image/png"
    assert _details(result) == {"path": "shot.txt", "bytes": len(picture), "mimeType": "image/png"}
    told = await call_tool(Read(), ctx, path="story")
    assert (told.output, told.images) == ("GIF89a is how it begins\n", ())


async def test_image_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """One byte more than is looked at."""
    with (tmp_path / "large.png").open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n\0\0\0\x0d")
        file.truncate(MAX_SOURCE_BYTES + 1)
    with pytest.raises(ImageRefused, match=r"'large.png'.*20,971,520 bytes"):
        await call_tool(Read(), make_context(tmp_path), path="large.png")


async def test_files_are_found_by_their_look_and_it_is_said(tmp_path: Path) -> None:
    """Every tool for files takes a name as people see it, changes that very file, and says its real name."""
    real, asked = "re\u0301sume\u0301 it\u2019s.txt", "r\u00e9sum\u00e9\u202fit's.txt"
    (tmp_path / real).write_text("one\n")
    ctx = make_context(tmp_path, SessionKind.MAIN)
    said = f"the only one that looks like it is {real!a}"
    text = (await call_tool(Read(), ctx, path=asked)).text_for_model()
    assert text.startswith("one\n[no entry is named ")
    assert said in text
    for tool, arguments in (
        (Edit(), {"old_text": "one", "new_text": "two"}),
        (Write(), {"content": "three\n"}),
    ):
        result = await call_tool(tool, ctx, path=asked, **arguments)
        assert isinstance(result.output, dict)
        assert result.output["path"] == real
        assert said in str(result.output["note"])
    assert [entry.path for entry in ctx.require(READER).list()] == [real]
    assert (tmp_path / real).read_text() == "three\n"
    for pattern in ("r\u00e9sum\u00e9*", "*it's.txt", "re\u0301sume\u0301*"):
        assert (await call_tool(Find(), ctx, pattern=pattern)).text_for_model() == real
        assert (
            await call_tool(Grep(), ctx, pattern="three", glob=pattern)
        ).text_for_model() == f"{real}:1: three"
    assert said in (await call_tool(Grep(), ctx, pattern="three", path=asked)).text_for_model()
    with pytest.raises(ExecutionError, match="near names there: 'new'"):
        (tmp_path / "new").mkdir()
        await call_tool(Read(), ctx, path="nwe")
