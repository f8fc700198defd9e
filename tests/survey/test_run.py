"""Whole surveys inside the test: what sessions find together is what one look finds, whatever happens."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sessiontree.api.runtime import Runtime
from sessiontree.api.session_tree import SessionTree
from sessiontree.channels.port import HumanChannel
from sessiontree.channels.terminal import TerminalChannel
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ConfigError, ExecutionError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tool import Tool
from sessiontree.runtime.progress import ProgressReader
from sessiontree.survey.bounds import AGENTS, MAX_LIVE, limits_for
from sessiontree.survey.consent import Consent, channel_of, choose
from sessiontree.survey.earlier import FindSurvey
from sessiontree.survey.folder_imports import FolderImports
from sessiontree.survey.import_roots import import_roots
from sessiontree.survey.joining import findings_of
from sessiontree.survey.model import SurveyModel
from sessiontree.survey.planning import SurveyPlan, window_of
from sessiontree.survey.remembering import RememberFiles
from sessiontree.survey.removal import RemoveSurvey
from sessiontree.survey.report import ReportMeta, render
from sessiontree.survey.run import Ending, begin, conduct, look_around, purpose_of, report_place
from sessiontree.survey.scan import scan
from sessiontree.survey.screen import View
from sessiontree.survey.tool import SurveyFiles, SurveyFilesParams, survey_file
from sessiontree.survey.whereabouts import Whereabouts
from sessiontree.survey.words import last_word_of
from sessiontree.workspace import WorkspaceReader

MakeTree = Callable[[Mapping[str, str | bytes]], Path]


@dataclass(slots=True)
class Lines:
    """A screen that keeps what it is shown."""

    lines: list[str] = field(default_factory=list)
    tables: list[tuple[Sequence[str], Sequence[Sequence[str | int]]]] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
        self.tables.append((header, rows))

    def shared_with(self, channel: HumanChannel) -> HumanChannel:
        return channel

    def live(self, events: Callable[[], ProgressReader]) -> AbstractAsyncContextManager[View | None]:
        return nullcontext(None)


@pytest.fixture
def channel() -> TerminalChannel:
    """A terminal whose input has ended."""
    return channel_of(None, io.StringIO())


async def surveyed(root: Path, state: Path, channel: TerminalChannel) -> tuple[Ending, Lines]:
    """Survey a directory to Main's last word."""
    screen = Lines()
    async with Runtime(state, backend="local", slots=MAX_LIVE) as runtime:
        folders = await look_around(WorkspaceReader(root), "SURVEY.md")
        tree = await begin(root, folders, "SURVEY.md", Consent("auto", "test"), channel, runtime)
        async with tree:
            return await conduct(tree, root, "SURVEY.md", screen), screen


def looked_at(root: Path) -> str:
    """Return the report of a directory made without a single session."""
    reader = WorkspaceReader(root)
    found = scan(reader)
    look = FolderImports(Whereabouts(reader), import_roots(file.path for file in found.files))
    findings = findings_of(
        [survey_file(reader, file.path, 2_000_000, look, window_of(found.files)) for file in found.files]
    )
    problems = {"problems": (*findings.problems, *found.problems)}
    return render(findings.model_copy(update=problems), ReportMeta(root.name, found.ignored))


SHARED = "".join(f"value_{number} = call_{number}(value_{number + 1})\n" for number in range(40))

SHAPES: list[dict[str, str | bytes]] = [
    {},
    {"a.py": "def f():\n    pass\n"},
    {"a/b/c.py": "# TODO: x\n", "a/d.js": "function g() {}\n", "z.md": "# title\n", ".git/x": "y"},
    {f"f{number:02}/m.py": f"# FIXME: {number}\nimport os\n" for number in range(40)},
    {f"wide/m{number:03}.py": f"def f{number}():\n    return {number}\n" for number in range(230)},
    {
        **{f"{name}/p/__init__.py": "" for name in ("src", "lib")},
        **{f"src/p/m{number}.py": SHARED + f"x = {number}\n" for number in range(3)},
        "lib/q.py": "import p.m1\nfrom p import m2\n" + SHARED + "def g(a):\n    return a or 1\n",
        "lib/same.py": SHARED,
        "src/same.py": SHARED,
    },
    {"data/x.bin": b"\x00\x01" * 50, "data/long.txt": "word " * 3_000, "odd name/é\u202e.py": "x = 1\n"},
]


@pytest.mark.slow
@pytest.mark.parametrize("files", SHAPES, ids=lambda files: f"{len(files)} files")
async def test_report_is_that_of_one_look(
    tmp_path: Path, make_tree: MakeTree, channel: TerminalChannel, files: dict[str, str | bytes]
) -> None:
    """Sharing the work out over sessions changes nothing in the report."""
    root = make_tree({f"root/{name}": content for name, content in files.items()}) / "root"
    root.mkdir(exist_ok=True)
    expected = looked_at(root)
    ending, screen = await surveyed(root, tmp_path / "state", channel)
    assert ending.watch.failure is None
    assert (root / "SURVEY.md").read_text() == expected
    assert ending.watch.files_done == ending.watch.files
    assert ending.watch.spawned == 1 + sum(line.startswith("started ") for line in screen.lines)
    assert ending.watch.ended == ending.watch.spawned - 1


@pytest.mark.slow
async def test_folder_of_many_pages_is_surveyed_whole(
    tmp_path: Path, make_tree: MakeTree, channel: TerminalChannel
) -> None:
    """A folder with more groups than a session may have children is done page by page."""
    files: dict[str, str | bytes] = {f"root/big/m{number:04}.py": "x = 1\n" for number in range(1_750)}
    root = make_tree(files) / "root"
    expected = looked_at(root)
    ending, _ = await surveyed(root, tmp_path / "state", channel)
    assert (root / "SURVEY.md").read_text() == expected
    assert ending.watch.spawned == 1 + 1 + 18


class Failing(SurveyFiles):
    """Fails on one group, and is stopped in the middle of another."""

    async def execute(self, params: SurveyFilesParams, ctx: ToolContext) -> ToolResult:
        if params.paths[0].startswith("bad/"):
            raise ExecutionError("the disk is on fire")
        if params.paths[0].startswith("mad/"):
            raise SystemExit(3)
        return await super().execute(params, ctx)


async def test_worker_that_fails_costs_its_files_alone(
    tmp_path: Path, make_tree: MakeTree, channel: TerminalChannel
) -> None:
    """A tool that fails, or runs amok, becomes a line of the report; all other files are surveyed."""
    files: dict[str, str | bytes] = {
        f"root/{name}/x.py": "def f(): pass\n" for name in ("bad", "good", "mad")
    }
    root = make_tree(files) / "root"
    folders = await look_around(WorkspaceReader(root), "SURVEY.md")
    tools: tuple[Tool[Any], ...] = (SurveyPlan(), Failing(), RememberFiles(), FindSurvey(), RemoveSurvey())
    tree = SessionTree(
        root,
        model=SurveyModel(),
        tools=tools,
        limits=limits_for(folders),
        agents=AGENTS,
        channel=channel,
        state_dir=tmp_path / "state",
        backend="local",
    )
    screen = Lines()
    async with tree:
        ending = await conduct(tree, root, "SURVEY.md", screen)
    assert ending.watch.last_word is not None
    assert (ending.watch.last_word.unread, ending.watch.last_word.problems) == (2, 2)
    report = (root / "SURVEY.md").read_text()
    assert "- `bad/x.py`: `1 file not surveyed: session main/b1/w1 failed: " in report
    assert "the disk is on fire" in report
    assert "- `mad/x.py`: `1 file not surveyed: session main/b3/w1 failed: " in report
    assert any(line.startswith("ended main/b1/w1: worker failed: ") for line in screen.lines)


async def test_session_of_a_survey_holds_what_its_kind_may(
    tmp_path: Path, make_tree: MakeTree, channel: TerminalChannel
) -> None:
    """Workers hold reading tools alone: neither the removal nor the writing of a report."""
    root = make_tree({"root/a.py": ""}) / "root"
    async with Runtime(tmp_path / "state", backend="local") as runtime:
        tree = await begin(root, [], "SURVEY.md", Consent("auto", "test"), channel, runtime)
        async with tree:
            worker = await tree.main.spawn("worker", '{"paths": ["a.py"]}')
            await worker.result()
            held = {line.session_id: line.kind for line in tree.receipt()}
            assert held["main/w1"] is SessionKind.WORKER
            facts = [record.fact() async for record in _until_ended(tree)]
    opened = [fact["tools"] for fact in facts if fact["kind"] == "opened"]
    assert any("survey_files" in tools for tools in opened)
    assert not any(
        {"write", "remove_survey", "sessions_spawn", "survey_plan"} & set(tools) for tools in opened
    )


async def _until_ended(tree: SessionTree) -> Any:
    async for record in tree.events():
        if record.session == "main/w1":
            yield record
        if record.text.startswith('{"kind":"session_ended"'):
            return


@pytest.mark.parametrize("out", ["", ".", "..", "../x", "a/../../x", "/x", "bad\udcff.md"])
def test_place_outside_is_refused(out: str) -> None:
    """A report goes inside the workspace, under a name that can be written."""
    with pytest.raises(ConfigError, match="--out"):
        report_place(out)


def test_place_inside_is_tidied() -> None:
    """Detours inside the workspace are no other place."""
    assert report_place("./docs//report.md") == "docs/report.md"
    assert purpose_of("SURVEY.md").endswith("SURVEY.md")


def test_mode_is_the_one_asked_for_or_fits_the_input(tmp_path: Path) -> None:
    """Asked for, the mode is taken; a file or nothing as input is no terminal; anything else is an error."""
    with (tmp_path / "input").open("w+") as reads:
        assert choose(None, reads) == Consent("auto", "the input is no terminal")
        assert choose("never", reads) == Consent("never", "--approve never")
        with pytest.raises(ConfigError, match="--approve 'NEVER' is none of"):
            choose("NEVER", reads)
    assert choose(None, None).mode == "auto"


def test_text_on_the_way_is_no_last_word() -> None:
    """Only a whole last word counts as one."""
    assert last_word_of("Waiting for the branches.") is None
    assert last_word_of("{}") is None
    assert last_word_of('{"survey": "lost", "path": "x"}') is None
    assert last_word_of('{"survey": "written", "path": "x"}') is not None
