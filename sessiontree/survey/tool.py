"""The survey's first tool: reads files and says what they hold."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import READER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError, ToolError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.ports import Reader
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
from sessiontree.survey.source import analyse, unread
from sessiontree.survey.whereabouts import Whereabouts

MAX_FILE_BYTES = 16_000_000
_UPDATE_EVERY_S = 0.2


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
