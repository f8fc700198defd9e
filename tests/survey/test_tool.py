"""The survey's reading tool: real files of every kind, read through a real reader."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.context import CallSignals
from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import check_tool
from sessiontree.schema.compiled import compile_tool
from sessiontree.survey.finding import GroupFindings
from sessiontree.survey.folder_imports import FolderImports
from sessiontree.survey.import_roots import import_roots
from sessiontree.survey.joining import findings_of
from sessiontree.survey.plan import plan
from sessiontree.survey.removal import RemoveSurvey
from sessiontree.survey.report import ReportMeta, render
from sessiontree.survey.scan import scan
from sessiontree.survey.tool import SurveyFiles, survey_file
from sessiontree.survey.whereabouts import Whereabouts
from sessiontree.testing.context import call_tool, make_context
from sessiontree.workspace import WorkspaceReader

MakeTree = Callable[[Mapping[str, str | bytes]], Path]


def test_the_tools_are_well_declared() -> None:
    """Both pass the check at registration and have a schema; one is a Worker's, the other needs a yes."""
    for tool in (SurveyFiles(), RemoveSurvey()):
        check_tool(tool)
        compile_tool(tool)
    assert SurveyFiles.tier is PermissionTier.READ_ONLY
    assert SessionKind.WORKER in SurveyFiles.kinds
    assert RemoveSurvey.tier is PermissionTier.ELEVATED
    assert RemoveSurvey.kinds == {SessionKind.MAIN}


async def test_a_worker_surveys_files_and_returns_typed_findings(make_tree: MakeTree) -> None:
    """The output is the findings' JSON, the display one line for people, a path given twice counts once."""
    root = make_tree({"a.py": "import os\ndef f():\n    return 1  # TODO x\n", "b/c.go": "package c\n"})
    ctx = make_context(root, SessionKind.WORKER)
    result = await call_tool(SurveyFiles(), ctx, paths=["a.py", "b/c.go", "a.py"])
    findings = GroupFindings.model_validate(result.output)
    assert findings.files == 2
    assert {name: totals.lines for name, totals in findings.languages.items()} == {"Go": 1, "Python": 3}
    assert [note.citation for note in findings.notes] == ["a.py#L3"]
    assert result.display == "2 files, 4 lines, 2 languages, 0 problems"


async def test_what_cannot_be_read_is_a_problem_and_the_rest_is_found(make_tree: MakeTree) -> None:
    """Pipes, directories, vanished files, links out of the root and paths outside cost one line each."""
    root = make_tree({"in/good.py": "x = 1\n", "in/dir/a": ""})
    os.mkfifo(root / "in" / "pipe")
    (root / "in" / "out").symlink_to("/etc/hostname")
    ctx = make_context(root / "in", SessionKind.WORKER)
    paths = ["good.py", "pipe", "dir", "gone.py", "out", "../in/dir/a"]
    findings = GroupFindings.model_validate((await call_tool(SurveyFiles(), ctx, paths=paths)).output)
    assert (findings.files, findings.unread, findings.languages["Python"].lines) == (6, 5, 1)
    assert [one.path for one in findings.problems] == sorted(["pipe", "dir", "gone.py", "out", "../in/dir/a"])
    assert all(one.text.startswith("can't be read: ") for one in findings.problems)


def looking(reader: WorkspaceReader, *roots: str) -> FolderImports:
    """Return what says where imports lead to."""
    return FolderImports(Whereabouts(reader), roots)


def test_giants_are_read_by_their_head(make_tree: MakeTree) -> None:
    """A line of a gigabyte and a sparse file of ten take the time and memory of their first bytes."""
    root = make_tree({"line.txt": b"a" * 5_000})
    os.truncate(root / "line.txt", 10**9)
    (root / "sparse.py").touch()
    os.truncate(root / "sparse.py", 10**10)
    reader = WorkspaceReader(root)
    line = survey_file(reader, "line.txt", 5_000, looking(reader))
    assert (line.kind, line.lines, line.bytes) == ("text", 1, 10**9)
    assert line.problem == "only the first 5,000 of 1,000,000,000 bytes were read"
    started = time.process_time()
    sparse = survey_file(reader, "sparse.py", 2_000_000, looking(reader))
    assert time.process_time() - started < 1
    assert (sparse.kind, sparse.bytes) == ("binary", 10**10)
    assert sparse.problem == (
        "only the first 2,000,000 of 10,000,000,000 bytes were read; "
        "named like Python but is no text; counted as binary"
    )


async def test_the_output_fits_what_a_model_is_given(make_tree: MakeTree) -> None:
    """However many notes there are, the text is whole JSON within the agent's bound."""
    root = make_tree({f"{number:03}.sh": "# TODO something\n" * 50 for number in range(20)})
    ctx = make_context(root, SessionKind.WORKER, config=AgentConfig(max_result_chars=3_000))
    result = await call_tool(SurveyFiles(), ctx, paths=[f"{number:03}.sh" for number in range(20)])
    assert len(result.text_for_model()) <= 3_000
    findings = GroupFindings.model_validate(result.output)
    assert len(findings.notes) + findings.notes_dropped == 1_000
    assert findings.totals.lines == 1_000


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"paths": []},
        {"paths": ["a"] * 501},
        {"paths": [""]},
        {"paths": ["a"], "max_bytes": 0},
        {"paths": ["a"], "max_bytes": 10**9},
        {"paths": ["a"], "other": 1},
    ],
)
async def test_arguments_out_of_range_are_refused(tmp_path: Path, arguments: dict[str, JsonValue]) -> None:
    """1 to 500 paths, a bound on bytes, and nothing else."""
    with pytest.raises(ValidationError):
        await call_tool(SurveyFiles(), make_context(tmp_path, SessionKind.WORKER), **arguments)


async def test_progress_counts_up_to_all_files(make_tree: MakeTree) -> None:
    """The last progress says that everything is done."""
    root = make_tree({f"{number}.py": "" for number in range(5)})
    seen: list[JsonValue] = []
    ctx = make_context(root, signals=CallSignals(time.monotonic() + 60, seen.append))
    await call_tool(SurveyFiles(), ctx, paths=[f"{number}.py" for number in range(5)])
    assert seen[-1] == {"done": 5, "of": 5, "path": "4.py"}


async def test_a_call_past_its_deadline_stops_between_two_files(make_tree: MakeTree) -> None:
    """Half a survey is an error that says how far it came, not a result that looks whole."""
    root = make_tree({"a.py": "", "b.py": ""})
    signals = CallSignals(time.monotonic() + 60)
    ctx = make_context(
        root, reader=CancellingReader(root, lambda: setattr(signals, "cancelled", True)), signals=signals
    )
    with pytest.raises(ExecutionError, match="stopped after 1 of 2"):
        await call_tool(SurveyFiles(), ctx, paths=["a.py", "b.py"])


class CancellingReader(WorkspaceReader):
    """Calls something when a file is opened, and counts openings."""

    __slots__ = ("on_open", "opened")

    def __init__(self, root: Path, on_open: Callable[[], object]) -> None:
        """Read beneath a root."""
        super().__init__(root)
        self.on_open = on_open
        self.opened = 0

    def open(self, path: str) -> BinaryIO:
        """Open a file."""
        self.opened += 1
        self.on_open()
        return super().open(path)


async def test_a_cancelled_call_leaves_no_thread_reading(make_tree: MakeTree) -> None:
    """After cancellation the thread stops at the next file."""
    root = make_tree({f"{number}.py": "" for number in range(100)})
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        go_on.wait(60)

    reader = CancellingReader(root, wait)
    ctx = make_context(root, reader=reader)
    paths = [f"{number}.py" for number in range(100)]
    task = asyncio.create_task(call_tool(SurveyFiles(), ctx, paths=paths))
    await asyncio.to_thread(inside.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert reader.opened == 1


async def test_without_a_reader_nothing_is_surveyed(tmp_path: Path) -> None:
    """The right comes with the handle."""
    with pytest.raises(PermissionDenied):
        await call_tool(SurveyFiles(), make_context(tmp_path, reader=None), paths=["a"])


@pytest.mark.slow
def test_this_checkout_is_surveyed_whole(make_tree: MakeTree) -> None:
    """A real tree: every file in one group, nothing failed, every function where the report says it is."""
    root = Path(__file__).parents[2]
    reader = WorkspaceReader(root)
    found = scan(reader)
    folders = plan(found.files, max_files=20)
    paths = [path for folder in folders for group in folder.groups for path in group]
    assert sorted(paths) == [file.path for file in found.files]
    look = looking(reader, *import_roots(paths))
    findings = findings_of(survey_file(reader, path, 2_000_000, look) for path in paths)
    assert findings.files == len(paths)
    assert not [one for one in findings.problems if "failed" in one.text]
    assert {"sessiontree", "tests", "."} <= set(findings.folders)
    for one in findings.largest_functions:
        line = (root / one.path).read_text("utf-8").split("\n")[one.line - 1]
        assert one.name.rpartition(".")[2] in line
    for note in findings.notes:
        line = (root / note.path).read_text("utf-8").split("\n")[note.line - 1]
        assert note.text.split()[0] in line
    assert f"`{findings.largest_functions[0].path}#L" in render(
        findings, ReportMeta("checkout", found.ignored)
    )
