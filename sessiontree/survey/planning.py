"""Planning: the tool that says what there is to survey, in pages short enough for a model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import READER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.jsonable import dump_readable
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.ports import Reader
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool
from sessiontree.survey.entries import MAX_FILE_ENTRIES
from sessiontree.survey.finding import PROBLEMS_KEPT, Problem
from sessiontree.survey.ground import Ground, StoppedLooking
from sessiontree.survey.import_roots import import_roots
from sessiontree.survey.languages import language_of
from sessiontree.survey.plan import DEFAULT_FILE_BYTES, FolderPlan, SurveyFile, plan
from sessiontree.survey.prints import WINDOW, window_of_tree
from sessiontree.survey.remembering import records_per_file
from sessiontree.survey.scan import Scan, scan

PAGE_ITEMS = 16
"""Most folders or groups of one page, and so the children a session of a survey has at a time."""
_PAGE_SHARE = 0.6
"""Part of a result's length that a page's items may fill."""

T = TypeVar("T")


class SurveyPlanParams(BaseModel):
    """What to plan, and from where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str | None = Field(
        default=None,
        max_length=4096,
        description="A top folder, or '.' for the files in the root itself: its groups of files. "
        "Left out: all top folders.",
    )
    after: str | None = Field(
        default=None, max_length=4096, description="The 'next' of the page before; left out = first page."
    )
    leave_out: tuple[str, ...] = Field(default=(), max_length=100, description="Files not to plan.")


class FolderLine(BaseModel):
    """One top folder with files to survey."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    files: int
    groups: int


class FolderPage(BaseModel):
    """Top folders of a workspace, ascending; amounts are those of the whole workspace on every page."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folders: tuple[FolderLine, ...]
    next: str | None
    """What to give as ``after`` for the next page; None = this is the last."""
    files: int
    ignored: int
    """Directories and links left out on purpose."""
    problems: tuple[Problem, ...]
    """What cannot be surveyed at all; at most 100."""
    problems_dropped: int
    roots: tuple[str, ...] = ()
    """Directories whose names can be imported from anywhere, see ``import_roots.py``."""
    window: int = WINDOW
    """Of how many prints in a row one is kept, see ``prints.py``."""
    records_per_file: int = MAX_FILE_ENTRIES
    """Most records of a file in memory, on average."""


class GroupPage(BaseModel):
    """Groups of files of one top folder, ascending."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: tuple[tuple[str, ...], ...]
    next: str | None
    """What to give as ``after`` for the next page; None = this is the last."""


def look(
    reader: Reader, stop: Callable[[], bool], leave_out: frozenset[str]
) -> tuple[Scan, list[FolderPlan]]:
    """Return everything there is to survey, and the whole plan. Blocks.

    Raises:
        ToolError: the root can't be listed.
        StoppedLooking: ``stop`` said so.
    """
    found = scan(Ground(reader, None, leave_out, stop))
    return found, list(plan(found.files))


def window_of(files: Iterable[SurveyFile]) -> int:
    """Return of how many prints in a row one is to be kept, so that they are not too many."""
    code = (file.size for file in files if language_of(file.path, "").role == "code")
    return window_of_tree(sum(size for size in code if size <= DEFAULT_FILE_BYTES))


class SurveyPlan(Tool[SurveyPlanParams]):
    """Looks at the workspace and shares its files out, page by page."""

    name: ClassVar[str] = "survey_plan"
    description: ClassVar[str] = (
        "Say which top folders hold files to survey, or how one folder's files are grouped for workers; "
        "version control, caches, builds and installed packages are left out."
    )
    Params: ClassVar[type[BaseModel]] = SurveyPlanParams
    label: ClassVar[str] = "Plan survey"
    section: ClassVar[str] = "survey"
    tier: ClassVar[PermissionTier] = PermissionTier.READ_ONLY
    kinds: ClassVar[frozenset[SessionKind]] = MAIN_AND_BRANCH
    capabilities: ClassVar[frozenset[str]] = frozenset({READER.name})
    idempotent: ClassVar[bool] = True

    async def execute(self, params: SurveyPlanParams, ctx: ToolContext) -> ToolResult:
        """Look at the files in a thread; the output is a :class:`FolderPage` or a :class:`GroupPage`.

        Raises:
            PermissionDenied: the session holds no reader.
            ExecutionError: the root can't be listed, or the call was cancelled.
        """
        reader = ctx.require(READER)
        abandoned = threading.Event()
        max_chars = int(ctx.config.max_result_chars * _PAGE_SHARE)
        try:
            page = await asyncio.to_thread(
                _page, reader, params, max_chars, lambda: abandoned.is_set() or ctx.cancelled
            )
        except StoppedLooking:
            raise ExecutionError("can't finish the plan: the call was stopped") from None
        finally:
            # the thread of a cancelled call stops at the next directory
            abandoned.set()
        return ToolResult(output=page.model_dump(mode="json"), display=_said(page))


def _page(
    reader: Reader, params: SurveyPlanParams, max_chars: int, stop: Callable[[], bool]
) -> FolderPage | GroupPage:
    leave_out = frozenset(params.leave_out)
    if params.folder is None:
        return _folders(*look(reader, stop, leave_out), params.after, max_chars)
    found = scan(Ground(reader, params.folder, leave_out, stop))
    files = [file for file in found.files if params.after is None or file.path > params.after]
    groups = [group for folder in plan(files) for group in folder.groups]
    shown = _fitting([list(group) for group in groups[:PAGE_ITEMS]], max_chars)
    if not shown and groups:
        # paths so long that not even one group fits: a part of it
        shown = [_fitting(list(groups[0]), max_chars) or [groups[0][0]]]
    last = shown[-1][-1] if shown else None
    more = last is not None and files[-1].path > last
    return GroupPage(groups=tuple(map(tuple, shown)), next=last if more else None)


def _folders(found: Scan, folders: list[FolderPlan], after: str | None, max_chars: int) -> FolderPage:
    ahead = [one for one in folders if after is None or one.folder > after]
    lines = [
        {"folder": one.folder, "files": one.files, "groups": len(one.groups)} for one in ahead[:PAGE_ITEMS]
    ]
    shown: list[dict[str, Any]] = _fitting(lines, max_chars) or lines[:1]
    return FolderPage(
        folders=tuple(map(FolderLine.model_validate, shown)),
        next=str(shown[-1]["folder"]) if len(shown) < len(ahead) else None,
        files=len(found.files),
        ignored=found.ignored,
        problems=found.problems[:PROBLEMS_KEPT],
        problems_dropped=max(0, len(found.problems) - PROBLEMS_KEPT),
        roots=import_roots(file.path for file in found.files),
        window=window_of(found.files),
        records_per_file=records_per_file(len(found.files)),
    )


def _fitting(items: list[T], max_chars: int) -> list[T]:
    """Return the first items whose JSON texts have at most so many characters together."""
    shown: list[T] = []
    left = max_chars
    for item in items:
        left -= len(dump_readable(item)) + 1
        if left < 0:
            break
        shown.append(item)
    return shown


def _said(page: FolderPage | GroupPage) -> str:
    if isinstance(page, FolderPage):
        return f"{page.files:,} files; {len(page.folders):,} folders on this page"
    return f"{sum(map(len, page.groups)):,} files in {len(page.groups):,} groups on this page"
