"""``find``: names beneath the workspace, sorted, bounded, and never outside it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.handles.ports import Entry
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import CallSignals
from sessiontree.testing.context import call_tool, make_context
from sessiontree.workspace import WorkspaceReader
from sessiontree_tools.files.file_walk import Walk
from sessiontree_tools.files.find import Find

FILES = ["a.py", "a/b.py", "a/test_c.py", "a-b/c.py", "z.md", ".git/config", "sub/.git/hooks/x.py", ".env"]


class HalfReadable(WorkspaceReader):
    """A reader that may not list one directory."""

    __slots__ = ()

    def list(self, path: str = ".") -> list[Entry]:
        """Refuse the directory ``a``."""
        if path == "a":
            raise ExecutionError("can't list 'a': permission denied")
        return super().list(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with files, a link out of it and one inside."""
    workspace = tmp_path / "ws"
    for name in FILES:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()
    (tmp_path / "outside.py").touch()
    (workspace / "link.py").symlink_to("a.py")
    (workspace / "up").symlink_to(tmp_path)
    return workspace


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"pattern": "*.py"}, ["a-b/c.py", "a.py", "a/b.py", "a/test_c.py", "link.py"]),
        ({"pattern": "/".join(["**", "test_*"])}, ["a/test_c.py"]),
        ({"pattern": "*/*.py"}, ["a-b/c.py", "a/b.py", "a/test_c.py"]),
        ({"pattern": "*.py", "path": "a"}, ["a/b.py", "a/test_c.py"]),
        ({"pattern": "b.py", "path": "./a/"}, ["a/b.py"]),
        ({"pattern": "*"}, [".env", "a-b/c.py", "a.py", "a/b.py", "a/test_c.py", "link.py", "up", "z.md"]),
        ({"pattern": ".git/*"}, [".git/config"]),
        ({"pattern": "/".join(["**", ".git", "**"])}, [".git/config", "sub/.git/hooks/x.py"]),
        ({"pattern": "*", "path": "sub/.git"}, ["sub/.git/hooks/x.py"]),
    ],
)
async def test_paths_are_sorted_and_relative_to_the_workspace(
    root: Path, arguments: dict[str, Any], paths: list[str]
) -> None:
    """Each answer can be handed to read as it is; .git is left out unless it is named."""
    result = await call_tool(Find(), make_context(root, SessionKind.WORKER), **arguments)
    assert str(result.output).splitlines() == paths == sorted(paths)
    assert isinstance(result.details, dict)
    assert (result.details["count"], result.details["limited"]) == (len(paths), False)


async def test_limit_cuts_the_list_and_says_so(root: Path) -> None:
    """The first of the sorted paths are shown; a list that just fits says nothing."""
    cut = await call_tool(Find(), make_context(root), pattern="*.py", limit=2)
    *paths, note = str(cut.output).splitlines()
    assert paths == ["a-b/c.py", "a.py"]
    assert note.startswith("[limit of 2 paths reached, there are more")
    exact = await call_tool(Find(), make_context(root), pattern="*.py", limit=5)
    assert "limit" not in str(exact.output)


async def test_answer_stays_within_one_result(root: Path) -> None:
    """Long lists end at a whole path, with a note."""
    for number in range(300):
        (root / f"file-{number:03}").touch()
    ctx = make_context(root, config=AgentConfig(max_result_chars=1000))
    output = str((await call_tool(Find(), ctx, pattern="file-*")).output)
    assert len(output) <= 1000
    assert output.splitlines()[-1].startswith("[more did not fit")
    assert all(len(line) == 8 for line in output.splitlines()[:-1])


async def test_no_file_fits(root: Path) -> None:
    """Nothing found is an answer, not an error."""
    result = await call_tool(Find(), make_context(root), pattern="*.rs")
    assert result.output == "[no file fits the pattern]"


async def test_directory_that_cannot_be_listed_is_counted(root: Path) -> None:
    """The rest is listed, and the gap is reported."""
    ctx = make_context(root, reader=HalfReadable(root))
    result = await call_tool(Find(), ctx, pattern="*.py")
    assert str(result.output).splitlines() == [
        "a-b/c.py",
        "a.py",
        "link.py",
        "[1 directories could not be read]",
    ]


async def test_strange_names_stay_on_their_line(root: Path) -> None:
    """Line ends, controls and bytes that are no text are escaped or replaced."""
    (root / "two\nlines").touch()
    (Path(str(root)) / "esc\x1b[1m").touch()
    (root / b"raw-\xff".decode(errors="surrogateescape")).touch()
    result = await call_tool(Find(), make_context(root), pattern="{esc,raw,two}*")
    assert str(result.output).splitlines() == ["esc\\x1b[1m", "raw-?", "two\\nlines"]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"pattern": ""}, ValidationError, "at least 1"),
        ({"pattern": "/etc/*"}, ValidationError, "absolute"),
        ({"pattern": "../*"}, ValidationError, "upwards"),
        ({"pattern": "*", "limit": 0}, ValidationError, "greater than or equal to 1"),
        ({"pattern": "*", "limit": 10_001}, ValidationError, "less than or equal to 10000"),
        ({"pattern": "*", "hidden": True}, ValidationError, "not permitted"),
        ({"pattern": "*", "path": "missing"}, ExecutionError, "no such file"),
        ({"pattern": "*", "path": "a.py"}, ExecutionError, "not a directory"),
        ({"pattern": "*", "path": ".."}, PermissionDenied, "outside"),
        ({"pattern": "*", "path": "up"}, PermissionDenied, "outside"),
    ],
)
async def test_bad_finding_is_refused_with_a_reason(
    root: Path, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Each mistake has its own typed error."""
    with pytest.raises(error, match=text):
        await call_tool(Find(), make_context(root), **arguments)


async def test_finding_ends_when_the_call_is_over(root: Path) -> None:
    """A walk goes no further once the deadline passed."""
    with pytest.raises(ExecutionError, match="cancelled"):
        await call_tool(Find(), make_context(root, signals=CallSignals(deadline=0.0)), pattern="*")


def test_walk_that_takes_too_long_ends_and_says_so(root: Path) -> None:
    """Many files keep no host for long; whoever asked learns how far it came, and what to do."""
    quick = Walk(WorkspaceReader(root), lambda: False)
    names = [found.below for found in quick.files(".")]
    assert (quick.is_cut_short, quick.seen, quick.note("narrow path")) == (False, len(names), [])
    slow = Walk(WorkspaceReader(root), lambda: False, most_s=0.05)
    walking = slow.files(".")
    assert next(walking).below == names[0]
    time.sleep(0.06)  # noqa: TID251 - the walk's time passes
    assert list(walking) == []
    assert slow.note("narrow path") == ["stopped after 0.05 s and 1 files, there are more; narrow path"]
