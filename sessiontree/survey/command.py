"""Command: what ``sessiontree survey`` and ``sessiontree resume`` do, up to the exit code."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import ValidationError

from sessiontree import (
    AgentConfig,
    AgentSpec,
    App,
    ConfigError,
    FunctionModel,
    JournalRecord,
    Limits,
    ProgressReader,
    Rule,
    Runtime,
    SessionClosed,
    SessionFailed,
    SessionTree,
    SessionTreeError,
    TerminalChannel,
    TreeSummary,
)
from sessiontree.survey.earlier import find_survey, remove_survey
from sessiontree.survey.model import MODEL_NAME, SurveyOrder, SurveyResult, parse_result, reply
from sessiontree.survey.source.census import Totals
from sessiontree.survey.source.checkout import REPORT_NAME, to_printable_path
from sessiontree.survey.source.languages import check_installed
from sessiontree.survey.tools import PAGE_ITEMS, SurveyPage, remember_files, survey_files, survey_plan

CODES = {"written": 0, "failed": 1, "kept": 3, "interrupted": 130}
"""Exit codes: the report is in its place; the survey failed; what was in its place was kept; Ctrl-C."""
_MODES = ("auto", "smart", "always", "never")
MAX_LIVE = 1 + PAGE_ITEMS + PAGE_ITEMS**2
"""Main, a page of Branches, and a page of Workers each."""
_PURPOSE = "survey to "
_ASK = "What became of the survey?"
_MAX_RESULT_CHARS = 400_000
_THREADS = 1
"""Surveying is nearly all Python: more threads only make each other, and the event loop, wait."""
_LANGUAGES_SHOWN = 12
_TREE_ID = re.compile(r"t[0-9a-f]{16}")

BackendName: TypeAlias = Literal["ray", "local"]

_PROMPT = "You are one session of a survey: share work out, or do it, and hand up what was found."
_AGENTS = {"default": AgentSpec(config=AgentConfig(prompt=_PROMPT, max_result_chars=_MAX_RESULT_CHARS))}
_MODEL = FunctionModel(reply, name=MODEL_NAME)
_TOOLS = (survey_plan, survey_files, remember_files, find_survey, remove_survey)
_APP = App(model=_MODEL, tools=_TOOLS, agents=_AGENTS)
"""What every survey is opened with, new or resumed."""
_SMART_RULES = (Rule(tool="remove_survey", where={"/path": REPORT_NAME}, answer="approve"),)
"""What mode ``smart`` allows: removing the survey's own earlier report from its usual place."""
_LIMITS = Limits(
    max_depth=2,
    max_children=PAGE_ITEMS,
    max_live=MAX_LIVE,
    max_total=100_000,
    max_turns=100_000,
    tool_timeout_s=6 * 3600.0,  # a call's time begins while it waits for its thread
    approval_expiry_s=7 * 24 * 3600.0,
    approval_patience_s=None,
    branch_ttl_s=None,  # an interrupted survey may be resumed days later
    worker_ttl_s=None,
)


class SurveyView(Protocol):
    """Shows a running tree by its facts, and counts what they say."""

    def take(self, record: JournalRecord) -> None:
        """Take the tree's next fact in."""

    def expect(self, files: int) -> None:
        """Say how many files there are."""

    def amounts(self) -> tuple[int, int, int]:
        """Return how many sessions were started, how many have ended, and how many files are done."""


class SurveyScreen(Protocol):
    """Takes lines, tables and a running tree; makes what is invisible visible."""

    def line(self, text: str) -> None:
        """Show one line at once."""

    def raw(self, text: str) -> None:
        """Show text that a program reads, as it is."""

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
        """Show a table: columns of numbers to the right, any other to the left."""

    def share_with(self, channel: TerminalChannel) -> Any:
        """Return a channel that asks on the same terminal, and has it for itself meanwhile."""

    def watch(
        self, events: Callable[[], ProgressReader], known_seq: int
    ) -> AbstractAsyncContextManager[SurveyView]:
        """Show a tree as it goes on; what facts up to a number say has no line."""


@dataclass(slots=True)
class _Run:
    """One run of a survey, new or resumed."""

    root: Path
    state_dir: Path
    out: str
    """Where the report goes, relative to the root."""
    backend: BackendName
    screen: SurveyScreen
    settings: dict[str, Any]
    """Options of a new tree; none for one that is resumed."""
    said: tuple[str, ...]
    """Lines to begin with."""
    known_seq: int = 0
    """Number of the last fact that an earlier process made; what it says is not shown again."""
    tree_id: str | None = None
    """The tree to take up; once a tree is open, its id."""
    is_finished: bool = False
    known_files: int = 0
    """Files that an earlier process surveyed."""
    has_news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each fact."""


def survey(
    screen: SurveyScreen,
    *,
    path: Path,
    approve: str | None,
    state_dir: Path | None,
    backend: BackendName,
    out: str,
) -> int:
    """Survey a directory and return the exit code.

    Args:
        screen: Shows what happens.
        path: The directory.
        approve: Approval mode; None = ``always`` at a terminal, else ``auto``.
        state_dir: Where the journal is; None = the directory's own place.
        backend: What runs it.
        out: Where the report goes, relative to the directory.

    Raises:
        SessionTreeError: it can't begin; nothing was changed.
    """
    check_installed()
    place = _report_place(out)
    mode, why = _choose_approval_mode(approve)
    rights = {"limits": _LIMITS, "approvals": mode, "smart_rules": _SMART_RULES}
    settings = {**rights, "purpose": f"{_PURPOSE}{place}"}
    root = path.expanduser().absolute()
    # a tree that is not opened checks the workspace, and says where its state is
    state = SessionTree(root, _APP, **settings, state_dir=state_dir).state_dir
    root = root.resolve()
    if not os.access(root, os.R_OK | os.X_OK):
        raise ConfigError(f"{str(root)!r} can't be listed: permission denied; survey it as who may read it")
    if root.is_relative_to(state.resolve()):
        raise ConfigError(f"--state-dir {str(state_dir)!r} holds the directory to survey; give another place")
    said = (f"surveying {root}", f"approvals: {'asks each time' if mode == 'always' else mode} ({why})")
    return _run(_Run(root, state, place, backend, screen, settings, said))


def resume(
    screen: SurveyScreen,
    *,
    tree_or_path: str | None,
    path: Path | None,
    state_dir: Path | None,
    backend: BackendName,
) -> int:
    """Finish a survey that was left and return the exit code.

    Args:
        screen: Shows what happens.
        tree_or_path: A tree's id or, alone, the surveyed directory.
        path: The surveyed directory; None = the current one.
        state_dir: Where the journal is; None = the directory's own place.
        backend: What runs it.

    Raises:
        SessionTreeError: no survey is unfinished, or it can't be resumed.
    """
    tree_id = tree_or_path
    if tree_or_path is not None and path is None and not _TREE_ID.fullmatch(tree_or_path):
        tree_id, path = None, Path(tree_or_path)
    if state_dir is None:
        state_dir = SessionTree(path or Path(), _APP).state_dir
    if not state_dir.expanduser().is_dir():
        raise ConfigError(f"no journal is in {str(state_dir)!r}; start one with `sessiontree survey`")
    left = asyncio.run(_find_unfinished(state_dir, tree_id, backend))
    out = (left.purpose or "").removeprefix(_PURPOSE)
    root, said = Path(left.workspace or ""), (f"resuming the survey of {left.workspace}",)
    return _run(_Run(root, state_dir, out, backend, screen, {}, said, left.last_seq, left.tree_id))


def _report_place(out: str) -> str:
    """Return where a report goes, relative to the workspace; ConfigError for a name that leads outside."""
    place = PurePosixPath(out)
    if place.is_absolute() or ".." in place.parts or not place.name:
        raise ConfigError(f"--out {out!r} is not a path inside the workspace; give a name such as SURVEY.md")
    if to_printable_path(out) != out:
        raise ConfigError(f"--out {out!r} is not UTF-8; give a name such as SURVEY.md")
    return str(place)


def _choose_approval_mode(asked: str | None) -> tuple[Any, str]:
    """Return the approval mode and where it comes from."""
    if asked is None:
        is_terminal = sys.stdin.isatty()
        return (
            ("always", "the input is a terminal") if is_terminal else ("auto", "the input is not a terminal")
        )
    if asked not in _MODES:
        raise ConfigError(f"--approve {asked!r} is not one of {', '.join(_MODES)}")
    return asked, f"--approve {asked}"


async def _find_unfinished(state_dir: Path, tree_id: str | None, backend: BackendName) -> TreeSummary:
    """Return the named survey, or the newest that is not finished.

    Raises:
        JournalError: a journal can't be read.
        ConfigError: the named tree is not a survey or is finished, or no survey is unfinished.
    """
    # on Ray, listing trees neither opens the journal nor starts anything
    async with Runtime(state_dir, backend=backend) as runtime:
        trees = [one for one in await runtime.trees() if tree_id in (None, one.tree_id)]
    surveys = [one for one in trees if (one.purpose or "").startswith(_PURPOSE)]
    left = [one for one in surveys if one.outcome is None or not one.outcome.is_final]
    if left:
        return max(left, key=lambda one: one.created_at_ms)
    problem = f"no unfinished survey is in {str(state_dir)!r}; start one with `sessiontree survey`"
    if tree_id is not None and not trees:
        problem = f"no tree is named {tree_id} in {str(state_dir)!r}; sessiontree tree --list shows them"
    elif tree_id is not None and not surveys:
        problem = f"tree {tree_id} is not a survey; resume it with the program that created it"
    elif tree_id is not None:
        problem = f"survey {tree_id} ended {surveys[0].outcome}; nothing is left to resume"
    raise ConfigError(problem)


def _run(run: _Run) -> int:
    was_open = run.tree_id
    try:
        return asyncio.run(_to_the_end(run))
    except KeyboardInterrupt:
        end, what = "interrupted", "interrupted"
    except (SessionTreeError, OSError) as error:
        if run.tree_id is None or run.tree_id == was_open:
            raise
        end, what = "failed", f"the survey stopped: {type(error).__name__}: {error}"
    if run.tree_id is not None and not run.is_finished:
        again = f"sessiontree resume {run.tree_id} --state-dir {shlex.quote(str(run.state_dir))}"
        what += f"; nothing that was done is lost, go on with: {again}"
    run.screen.line(what)
    return CODES[end]


async def _to_the_end(run: _Run) -> int:
    slots = MAX_LIVE if run.backend == "local" else None
    async with (
        Runtime(run.state_dir, backend=run.backend, slots=slots, tree_id=run.tree_id) as runtime,
        await _open(run, runtime) as tree,
    ):
        run.tree_id = tree.tree_id
        run.screen.line(f"tree {tree.tree_id}, journal in {run.state_dir}")
        code = await _conduct(tree, run)
        run.is_finished = True
        return code


async def _open(run: _Run, runtime: Runtime) -> SessionTree:
    for line in run.said:
        run.screen.line(line)
    channel = run.screen.share_with(TerminalChannel(sys.stdin, sys.stdout))
    if run.tree_id is not None:
        return await SessionTree.resume(run.tree_id, _APP, channel=channel, runtime=runtime)
    return await SessionTree(run.root, _APP, **run.settings, channel=channel, runtime=runtime).start()


async def _conduct(tree: SessionTree, run: _Run) -> int:
    """Show a survey to its end, put its report where it belongs, and return the exit code.

    Raises:
        SessionTreeError: the tree is gone, or can't be read.
        OSError: the report can't be put into the state directory; the tree stays unfinished.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "survey"))
    started = time.monotonic()
    saved = None
    async with run.screen.watch(tree.progress, run.known_seq) as view:
        showing = asyncio.create_task(_show(tree, run, view))
        asking = asyncio.create_task(_await_outcome(tree, run))
        try:
            await asyncio.wait((showing, asking), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                await showing  # it failed, or Main has ended
            result = await asking
            seconds = time.monotonic() - started
            if result.survey != "written":
                saved = _save(run.state_dir / f"SURVEY-{tree.tree_id}.md", result.report)
            await tree.finish(f"report {result.survey}: {result.path}")
            await showing
        except (SessionFailed, SessionClosed) as error:
            await tree.cancel(f"the survey failed: {error}")
            run.screen.line(f"the survey failed: {error}")
            return CODES["failed"]
        finally:
            asking.cancel()
            showing.cancel()
    sessions, _, files = view.amounts()
    speed = (files - run.known_files) / seconds
    _show_totals(result, run.screen, (f"{sessions:,}", f"{seconds:.1f}", f"{speed:,.0f}"))
    if saved is not None:
        what = "was left as it is" if result.survey == "kept" else "can't be written"
        run.screen.line(f"{result.path} {what}: {result.reason}")
    run.screen.line(f"report: {saved or run.root / result.path}")
    run.screen.line(f"journal: {run.state_dir}, tree {run.tree_id}")
    where = shlex.quote(str(run.state_dir))
    run.screen.line(f"show it: sessiontree tree --state-dir {where} --tree {run.tree_id}")
    return CODES[result.survey]


async def _await_outcome(tree: SessionTree, run: _Run) -> SurveyResult:
    """Give Main its order, unless it has it, and return its result.

    Main answers at once when it waits for others; once they are done it is asked again. Nothing is asked
    while a person decides: a new message would let Main go on without the answer.

    Raises:
        SessionFailed, SessionClosed: Main can't go on.
    """
    text = SurveyOrder(name=to_printable_path(run.root.name) or "/", out=run.out).model_dump_json()
    is_ordered = bool(tree.main.history(limit=1))
    while True:
        if is_ordered:
            for child in tree.main.status().children:
                await tree.session(child).result()
            while tree.main.status().pending_approvals:
                run.has_news.clear()
                await run.has_news.wait()
        result = parse_result(await tree.main.send(_ASK if is_ordered else text))
        if result is not None:
            return result
        is_ordered = True


async def _show(tree: SessionTree, run: _Run, view: SurveyView) -> None:
    """Show what happens until Main has ended."""
    is_planned = False
    async for record in tree.events():
        view.take(record)
        run.has_news.set()
        if record.session and not is_planned and (page := _find_plan(tree)) is not None:
            is_planned = True
            view.expect(page.files)
            if not run.known_seq:
                amounts = f"{page.all_folders:,} folders, {page.all_groups:,} groups"
                run.screen.line(f"planned: {page.files:,} files, {amounts}")
        if record.seq == run.known_seq:
            sessions, ended, run.known_files = view.amounts()
            amounts = f"{ended:,} of {sessions:,} sessions ended, {run.known_files:,} files done"
            run.screen.line(f"so far {amounts}")
        # facts that are there already come without a pause: let others, and Ctrl-C, have their turn
        await asyncio.sleep(0)


def _find_plan(tree: SessionTree) -> SurveyPage | None:
    """Return the first page of Main's plan: the result of the first call that it makes."""
    messages = tree.main.history(after=2, limit=1)
    try:
        return SurveyPage.model_validate_json(messages[0].text) if messages else None
    except ValidationError:  # the plan failed; Main says why
        return None


def _save(path: Path, report: str) -> Path:
    """Write a report in one step, readable by its owner alone."""
    part = path.with_name(f"{path.name}.part")
    part.touch(mode=0o600)
    with part.open("wb") as file:
        file.write(report.encode("utf-8", "backslashreplace"))
        file.flush()
        os.fsync(file.fileno())
    return part.replace(path)


def _show_totals(result: SurveyResult, screen: SurveyScreen, effort: tuple[str, ...]) -> None:
    found, totals = result.found, result.found.totals
    ordered = sorted(found.languages.items(), key=lambda item: (-item[1].lines, -item[1].files, item[0]))
    rows = [(name, one.files, one.lines, one.functions) for name, one in ordered[:_LANGUAGES_SHOWN]]
    rest = sum((one for _, one in ordered[_LANGUAGES_SHOWN:]), Totals())
    if rest.files:
        rows.append((f"{len(ordered) - len(rows)} others", rest.files, rest.lines, rest.functions))
    screen.table(("language", "files", "lines", "functions"), rows)
    header = ("total", "files", "lines", "functions", "TODOs", "problems", "sessions", "seconds", "files/s")
    numbers = (totals.files, totals.lines, totals.functions, found.notes_dropped, found.problems_dropped)
    screen.table(header, [("", *numbers, *effort)])
    if result.memory_problem:
        screen.line(f"questions can't be answered from this survey: {result.memory_problem}")
    elif found.records:
        left_out = f", {found.records_dropped:,} more were left out" if found.records_dropped else ""
        screen.line(f'memory: {found.records:,} records{left_out}; ask: sessiontree ask "where is …?"')
