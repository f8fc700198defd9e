"""The survey's two tools: one reads files and says what they hold, one removes an earlier report."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import READER, WRITER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError, ToolError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.ports import Reader, Writer
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import ALL_KINDS, Tool
from sessiontree.survey.finding import FileFinding, GroupFindings
from sessiontree.survey.fitting import fitted
from sessiontree.survey.folder_imports import FolderImports
from sessiontree.survey.import_roots import MAX_ROOTS
from sessiontree.survey.joining import findings_of
from sessiontree.survey.plan import DEFAULT_FILE_BYTES, MAX_GROUP_FILES
from sessiontree.survey.prints import MAX_LEVEL, WINDOW
from sessiontree.survey.report import is_report
from sessiontree.survey.source import analyse, unread
from sessiontree.survey.whereabouts import Whereabouts

MAX_FILE_BYTES = 16_000_000
_UPDATE_EVERY_S = 0.2
_FIRST_LINE_BYTES = 200


class SurveyFilesParams(BaseModel):
    """Which files to survey."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        min_length=1, max_length=MAX_GROUP_FILES, description="Files to survey, relative to the workspace."
    )
    max_bytes: int = Field(
        default=DEFAULT_FILE_BYTES,
        ge=1,
        le=MAX_FILE_BYTES,
        description="Most bytes read of one file; of a larger one its beginning is surveyed.",
    )
    roots: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        default=[],
        max_length=MAX_ROOTS,
        description="Directories in which imported names are looked up, besides those around a file.",
    )
    window: int = Field(
        default=WINDOW,
        ge=WINDOW,
        le=WINDOW << MAX_LEVEL,
        description="Of so many fingerprints in a row one is kept; larger finds longer duplicates alone.",
    )


class SurveyFiles(Tool[SurveyFilesParams]):
    """Reads files and returns what they hold together, as :class:`GroupFindings`.

    What cannot be read becomes a problem of the findings, never an error: one vanished file must not cost the
    work on the others. The output's text always fits ``ctx.config.max_result_chars``.
    """

    name: ClassVar[str] = "survey_files"
    description: ClassVar[str] = (
        "Analyse files and return totals per language, the longest and most complex functions, TODO notes "
        "with places, imported packages and folders, prints of the text, and what could not be read."
    )
    Params: ClassVar[type[BaseModel]] = SurveyFilesParams
    label: ClassVar[str] = "Survey files"
    section: ClassVar[str] = "survey"
    tier: ClassVar[PermissionTier] = PermissionTier.READ_ONLY
    kinds: ClassVar[frozenset[SessionKind]] = ALL_KINDS
    capabilities: ClassVar[frozenset[str]] = frozenset({READER.name})
    idempotent: ClassVar[bool] = True

    async def execute(self, params: SurveyFilesParams, ctx: ToolContext) -> ToolResult:
        """Survey the files in a thread, reporting progress.

        Raises:
            PermissionDenied: the session holds no reader.
            ExecutionError: the call was cancelled or its deadline passed between two files.
        """
        reader = ctx.require(READER)
        abandoned = threading.Event()
        try:
            findings = await asyncio.to_thread(_survey, params, reader, ctx, abandoned)
        finally:
            # the thread of a cancelled call stops at the next file
            abandoned.set()
        fitting = fitted(findings, ctx.config.max_result_chars)
        return ToolResult(output=fitting.model_dump(mode="json"), display=_said(findings))


def _survey(
    params: SurveyFilesParams, reader: Reader, ctx: ToolContext, abandoned: threading.Event
) -> GroupFindings:
    paths = list(dict.fromkeys(params.paths))
    look = FolderImports(Whereabouts(reader), params.roots)
    findings: list[FileFinding] = []
    reported = time.monotonic()
    for path in paths:
        if abandoned.is_set() or ctx.cancelled:
            raise ExecutionError(
                f"can't finish the survey: stopped after {len(findings)} of {len(paths)} files"
            )
        findings.append(survey_file(reader, path, params.max_bytes, look, params.window))
        now = time.monotonic()
        if now - reported >= _UPDATE_EVERY_S or len(findings) == len(paths):
            reported = now
            ctx.update({"done": len(findings), "of": len(paths), "path": findings[-1].path})
    return findings_of(findings)


def survey_file(
    reader: Reader, path: str, max_bytes: int, look: FolderImports, window: int = WINDOW
) -> FileFinding:
    """Return the finding of one file; what the reader refuses becomes its problem. Blocks.

    Args:
        reader: Opens it.
        path: Relative to the reader's root.
        max_bytes: Most bytes read.
        look: Says where its imports lead to.
        window: Of how many prints in a row one is kept.
    """
    try:
        with reader.open(path) as file:
            total_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            data = file.read(min(max_bytes, total_bytes))
    except (ToolError, OSError) as error:
        return unread(path, f"can't be read: {error}")
    found = analyse(path, data, total_bytes, window)
    leads_to = look.of(found.path, found.language, found.references)
    return found.model_copy(update={"imports_from": leads_to}) if leads_to else found


def _said(findings: GroupFindings) -> str:
    problems = len(findings.problems) + findings.problems_dropped
    return (
        f"{findings.files:,} {'file' if findings.files == 1 else 'files'}, {findings.totals.lines:,} lines, "
        f"{len(findings.languages):,} languages, {problems:,} problems"
    )


class RemoveSurveyParams(BaseModel):
    """Which report to remove."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(
        min_length=1, max_length=4096, description="The report to remove, relative to the workspace."
    )


class RemoveSurvey(Tool[RemoveSurveyParams]):
    """Removes the report of an earlier survey, and nothing else: what it removes begins with our marker."""

    name: ClassVar[str] = "remove_survey"
    description: ClassVar[str] = "Remove the SURVEY.md an earlier survey wrote; refuses any other file."
    Params: ClassVar[type[BaseModel]] = RemoveSurveyParams
    label: ClassVar[str] = "Remove earlier survey"
    section: ClassVar[str] = "survey"
    tier: ClassVar[PermissionTier] = PermissionTier.ELEVATED
    kinds: ClassVar[frozenset[SessionKind]] = frozenset({SessionKind.MAIN})
    capabilities: ClassVar[frozenset[str]] = frozenset({READER.name, WRITER.name})
    sequential: ClassVar[bool] = True

    async def execute(self, params: RemoveSurveyParams, ctx: ToolContext) -> ToolResult:
        """Check that the file is a report, then remove it.

        Raises:
            PermissionDenied: the session may not read or write there.
            ExecutionError: it does not exist, is no regular file, or is no report of a survey.
        """
        removed = await asyncio.to_thread(_remove, params.path, ctx.require(READER), ctx.require(WRITER))
        return ToolResult(
            output={"removed": params.path, "bytes": removed},
            display=f"removed {params.path} ({removed:,} bytes)",
        )


def _remove(path: str, reader: Reader, writer: Writer) -> int:
    """Remove a report and return its size in bytes."""
    folder, _, name = path.rpartition("/")
    # a listing tells a link from a file, opening does not
    entries = [entry for entry in reader.list(folder or ".") if entry.path.rpartition("/")[2] == name]
    if not entries:
        raise ExecutionError(f"can't remove {path!r}: it does not exist")
    if entries[0].type != "file":
        raise ExecutionError(f"can't remove {path!r}: it is a {entries[0].type}, not a regular file")
    with reader.open(path) as file:
        first_line = file.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    if not is_report(first_line.decode("latin-1")):
        raise ExecutionError(f"can't remove {path!r}: its first line is not that of a survey report")
    writer.remove(path)
    return entries[0].size
