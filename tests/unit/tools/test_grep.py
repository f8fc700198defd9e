"""``grep``: lines by what they say, and no pattern that never ends."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import CallSignals
from sessiontree.testing.context import call_tool, make_context
from sessiontree.workspace import WorkspaceReader
from sessiontree_tools.files.file_walk import Walk
from sessiontree_tools.files.grep import CHUNK_BYTES, Grep, Search
from sessiontree_tools.files.line_matcher import LineMatcher, make_text_finder

Leftovers = Callable[[], AbstractContextManager[None]]

FILES = {
    "a.py": "import os\n\ndef main() -> None:\n    print(os.name)\n",
    "docs/b.md": "# Main\r\nThe main thing.\r\n",
    "docs/deep/c.md": "nothing here\n",
    ".git/config": "main\n",
}
ENDLESS = "(a+)+$"


class Watched(WorkspaceReader):
    """A reader that tells when a file is opened."""

    __slots__ = ("opened",)
    opened: Callable[[], object]

    def open(self, path: str) -> BinaryIO:
        """Open the file and tell."""
        stream = super().open(path)
        self.opened()
        return stream


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with text and a link."""
    workspace = tmp_path / "ws"
    for name, text in FILES.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text, newline="")
    (workspace / "link.py").symlink_to("a.py")
    return workspace


@pytest.mark.short(6)
@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"pattern": "main"}, ["a.py:3: def main() -> None:", "docs/b.md:2: The main thing."]),
        (
            {"pattern": "MAIN", "ignore_case": True, "path": "docs"},
            ["docs/b.md:1: # Main", "docs/b.md:2: The main thing."],
        ),
        ({"pattern": "main", "glob": "*.md"}, ["docs/b.md:2: The main thing."]),
        ({"pattern": "main", "glob": "docs/*"}, ["docs/b.md:2: The main thing."]),
        ({"pattern": "main", "path": "docs/b.md"}, ["docs/b.md:2: The main thing."]),
        ({"pattern": "main", "path": "link.py"}, ["a.py:3: def main() -> None:"]),
        ({"pattern": "main", "glob": ".git/*"}, [".git/config:1: main"]),
        (
            {"pattern": "main", "context": 1},
            [
                "a.py-2- ",
                "a.py:3: def main() -> None:",
                "a.py-4-     print(os.name)",
                "--",
                "docs/b.md-1- # Main",
                "docs/b.md:2: The main thing.",
            ],
        ),
    ],
)
async def test_matching_lines_are_shown_with_path_and_number(
    root: Path, arguments: dict[str, Any], lines: list[str], literal: bool
) -> None:
    """Files come in the order of their paths; expression and text find the same here."""
    ctx = make_context(root, SessionKind.WORKER)
    if not literal:
        arguments = arguments | {"pattern": f"(?:{arguments['pattern']})"}
    result = await call_tool(Grep(), ctx, **arguments, literal=literal)
    assert str(result.output).split("\n") == lines
    assert isinstance(result.details, dict)
    assert result.details["matches"] == sum(": " in line for line in lines)


async def test_expression_and_text_differ(root: Path) -> None:
    """Punctuation means itself only in a literal search, in either case."""
    for literal, ignore_case, count in ((False, False, 1), (True, False, 1), (True, True, 1)):
        arguments: dict[str, Any] = {"literal": literal, "ignore_case": ignore_case}
        pattern = r"main\(\)" if not literal else "main()"
        result = await call_tool(Grep(), make_context(root), pattern=pattern, **arguments)
        assert str(result.output).count("\n") + 1 == count
        assert "a.py:3" in str(result.output)


@pytest.mark.parametrize("literal", [False, True])
async def test_limit_cuts_the_list_and_says_so(root: Path, literal: bool) -> None:
    """The note appears only where something was left out."""
    (root / "many").write_text("x\n" * 7)
    pattern = "x" if literal else "^x$"
    cut = await call_tool(Grep(), make_context(root), pattern=pattern, path="many", limit=3, literal=literal)
    assert str(cut.output).splitlines()[:3] == ["many:1: x", "many:2: x", "many:3: x"]
    assert str(cut.output).splitlines()[3].startswith("[limit of 3 lines reached, more match")
    exact = await call_tool(
        Grep(), make_context(root), pattern=pattern, path="many", limit=7, literal=literal
    )
    assert "limit" not in str(exact.output)


async def test_no_line_matches(root: Path) -> None:
    """Nothing found is an answer that says how much was searched."""
    (root / "data.bin").write_bytes(b"main\0main\n")
    result = await call_tool(Grep(), make_context(root), pattern="absent")
    assert result.output == (
        "[no line of 3 files matches]\n"
        "[1 binary file was skipped, for a NUL byte in the first 8 KB: data.bin]"
    )


@pytest.mark.parametrize("pattern", ["main", "ma[i]n"])
async def test_skipped_files_are_named_beside_matches(root: Path, pattern: str) -> None:
    """One NUL makes a source binary; the result says so, whatever else matches."""
    for number in range(4):
        (root / f"d{number}.py").write_bytes(b"main\n\0")
    result = await call_tool(Grep(), make_context(root), pattern=pattern)
    text = str(result.output)
    assert "a.py:3: def main() -> None:" in text
    assert (
        "[4 binary files were skipped, for a NUL byte in the first 8 KB: d0.py, d1.py, d2.py and 1 more]"
        in (text)
    )


@pytest.mark.short(4)
@pytest.mark.parametrize("pattern", ["größe", "gr[ö]ße"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8"])
async def test_text_with_a_byte_order_mark_is_searched(root: Path, encoding: str, pattern: str) -> None:
    """Also where a character is cut by the end of a chunk, and where the file ends within one."""
    filler = "\U0001f600" + "x" * (CHUNK_BYTES // 2)
    whole = f"\ufeffgröße\r\n{filler}\r\n größe \U0001f600".encode(encoding)
    (root / "w.txt").write_bytes(whole + b"\0")
    result = await call_tool(Grep(), make_context(root), pattern=pattern, glob="w.txt")
    lines = str(result.output).splitlines()
    assert lines[0] == "w.txt:1: größe"
    assert lines[1].startswith("w.txt:3:  größe \U0001f600")


async def test_long_line_is_cut_around_the_match(root: Path) -> None:
    """One line of a minified file does not fill the answer."""
    (root / "min.js").write_text("a" * 9000 + "needle" + "b" * 9000)
    result = await call_tool(Grep(), make_context(root), pattern="needle", glob="*.js")
    text = str(result.output)
    assert len(text) < 530
    assert "aaneedlebb" in text


async def test_answer_stays_within_one_result(root: Path) -> None:
    """Many long lines end at a whole line, with a note."""
    (root / "many").write_text(("x" * 90 + "\n") * 500)
    ctx = make_context(root, config=AgentConfig(max_result_chars=2000))
    output = str((await call_tool(Grep(), ctx, pattern="x", path="many", limit=1000)).output)
    assert len(output) <= 2000
    assert "[more did not fit" in output.splitlines()[-1]


def test_search_ends_at_its_bound_of_bytes(root: Path) -> None:
    """Bytes are counted over all files, and the search says that it stopped."""
    (root / "many").write_text("x\n" * CHUNK_BYTES)
    reader = WorkspaceReader(root)
    matcher = LineMatcher(make_text_finder("x"), context=0, limit=10**9)
    search = Search(reader, matcher, lambda: False, max_bytes=CHUNK_BYTES + 10, max_chars=10**9)
    files = (found for found in Walk(reader, lambda: False).files(".") if found.entry.type == "file")
    lines = search.lines(files, breaks=False)
    before = sum(len(text) for name, text in FILES.items() if not name.startswith(".git"))
    assert len(lines) == (CHUNK_BYTES + 10 - before + 1) // 2
    assert search.exhausted


async def test_unreadable_file_is_counted(root: Path) -> None:
    """A link that leads nowhere is no file; one that cannot be opened is reported."""

    class Locked(WorkspaceReader):
        __slots__ = ()

        def open(self, path: str) -> BinaryIO:
            if path == "a.py":
                raise ExecutionError("can't read 'a.py': permission denied")
            return super().open(path)

    ctx = make_context(root, reader=Locked(root))
    result = await call_tool(Grep(), ctx, pattern="main")
    assert str(result.output).splitlines() == [
        "docs/b.md:2: The main thing.",
        "[1 files or directories could not be read]",
    ]
    with pytest.raises(ExecutionError, match="permission denied"):
        await call_tool(Grep(), ctx, pattern="main", path="a.py")


@pytest.mark.short(5)
@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"pattern": ""}, ValidationError, "at least 1"),
        ({"pattern": "a" * 2001}, ValidationError, "at most 2000"),
        ({"pattern": "(unclosed"}, ValidationError, "not a regular expression: missing"),
        ({"pattern": "a", "glob": "../*"}, ValidationError, "upwards"),
        ({"pattern": "a", "context": -1}, ValidationError, "greater than or equal to 0"),
        ({"pattern": "a", "limit": 0}, ValidationError, "greater than or equal to 1"),
        ({"pattern": "a", "flags": "i"}, ValidationError, "not permitted"),
        ({"pattern": "a", "path": "missing"}, ExecutionError, "no such file"),
        ({"pattern": "a", "path": ".."}, PermissionDenied, "outside"),
        ({"pattern": "a", "path": "/etc"}, PermissionDenied, "outside"),
    ],
)
async def test_bad_searching_is_refused_with_a_reason(
    root: Path, arguments: dict[str, Any], error: type[Exception], text: str, nothing_left: Leftovers
) -> None:
    """Each mistake has its own typed error, and no process stays."""
    ctx = make_context(root)
    with nothing_left(), pytest.raises(error, match=text):
        await call_tool(Grep(), ctx, **arguments)


async def test_bad_expression_names_the_parameter(root: Path) -> None:
    """The error points at the pattern."""
    with pytest.raises(ValidationError) as caught:
        await call_tool(Grep(), make_context(root), pattern="[a")
    assert caught.value.field == "/pattern"


@pytest.mark.covers("REL-L64")
@pytest.mark.slow
async def test_endless_pattern_is_ended_within_three_seconds(root: Path, nothing_left: Leftovers) -> None:
    """REL-L64: the process it runs in is killed; the loop turns meanwhile, and nothing stays behind."""
    (root / "evil").write_text("a" * 5000 + "!\n")
    ctx = make_context(root)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    started = time.monotonic()
    turning = asyncio.create_task(turn())
    try:
        with nothing_left(), pytest.raises(ExecutionError, match="took too long"):
            await call_tool(Grep(), ctx, pattern=ENDLESS)
    finally:
        turning.cancel()
    assert 2 <= time.monotonic() - started < 30
    assert turns > 1000


@pytest.mark.parametrize("arguments", [{"literal": True}, {"literal": True, "ignore_case": True}])
async def test_endless_pattern_as_text_is_only_text(root: Path, arguments: dict[str, bool]) -> None:
    """Taken literally, it finds itself and nothing else."""
    (root / "evil").write_text("a" * 5000 + "!\n" + ENDLESS)
    result = await call_tool(Grep(), make_context(root), pattern=ENDLESS, path="evil", **arguments)
    assert result.output == f"evil:2: {ENDLESS}"


async def test_cancelled_search_leaves_nothing(root: Path, nothing_left: Leftovers) -> None:
    """Cancelling the task ends the process and gives back every descriptor before it returns."""
    (root / "evil").write_text("a" * 5000 + "!\n")
    opened = asyncio.Event()
    loop = asyncio.get_running_loop()
    reader = Watched(root)
    reader.opened = lambda: loop.call_soon_threadsafe(opened.set)
    ctx = make_context(root, reader=reader)
    with nothing_left():
        searching = asyncio.create_task(call_tool(Grep(), ctx, pattern=ENDLESS, glob="evil"))
        await opened.wait()
        started = time.monotonic()
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching
        assert time.monotonic() - started < 1.9, "it ends by itself after 2 s"


async def test_search_ends_at_its_deadline(root: Path, nothing_left: Leftovers) -> None:
    """A call whose time is over while the pattern runs ends before the pattern's own limit."""
    (root / "evil").write_text("a" * 5000 + "!\n")
    signals = CallSignals(time.monotonic() + 3600)
    reader = Watched(root)

    def cancel() -> None:
        signals.cancelled = True

    reader.opened = cancel
    ctx = make_context(root, reader=reader, signals=signals)
    with nothing_left(), pytest.raises(ExecutionError, match="cancelled"):
        await call_tool(Grep(), ctx, pattern=ENDLESS, glob="evil")


async def test_search_needs_no_environment(root: Path) -> None:
    """The process is given nothing of ours to give away."""
    os.environ["SESSIONTREE_TEST_SECRET"] = "x"
    try:
        result = await call_tool(Grep(), make_context(root), pattern="ma.n", glob="*.py")
    finally:
        del os.environ["SESSIONTREE_TEST_SECRET"]
    assert str(result.output).startswith("a.py:3")
