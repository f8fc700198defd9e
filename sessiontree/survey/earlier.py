"""Earlier: the tool that says what earlier surveys left: where the report is to go, and in memory."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import MEMORY, READER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import SessionTreeError, ToolError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.ports import Reader
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import Tool
from sessiontree.survey.mark import RememberedSurvey, remembered_surveys
from sessiontree.survey.report import is_report

_FIRST_LINE_BYTES = 200


class FindSurveyParams(BaseModel):
    """Where to look."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, max_length=4096, description="A path relative to the workspace.")


class EarlierSurvey(BaseModel):
    """What stands at a path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    exists: bool
    is_report: bool
    """Whether it is a regular file whose first line is that of a survey's report."""
    surveys: tuple[RememberedSurvey, ...] = ()
    """Finished surveys of this workspace that left records in memory, oldest first."""
    memory_problem: str = ""
    """Why memory could not be asked."""


class FindSurvey(Tool[FindSurveyParams]):
    """Looks whether an earlier report stands at a path, and which surveys memory knows."""

    name: ClassVar[str] = "find_survey"
    description: ClassVar[str] = (
        "Say whether anything stands at a path, whether it is an earlier survey, "
        "and what surveys left in memory."
    )
    Params: ClassVar[type[BaseModel]] = FindSurveyParams
    label: ClassVar[str] = "Find earlier survey"
    section: ClassVar[str] = "survey"
    tier: ClassVar[PermissionTier] = PermissionTier.READ_ONLY
    kinds: ClassVar[frozenset[SessionKind]] = frozenset({SessionKind.MAIN})
    capabilities: ClassVar[frozenset[str]] = frozenset({READER.name})
    optional_capabilities: ClassVar[frozenset[str]] = frozenset({MEMORY.name})
    idempotent: ClassVar[bool] = True

    async def execute(self, params: FindSurveyParams, ctx: ToolContext) -> ToolResult:
        """Look; the output is an :class:`EarlierSurvey`.

        Raises:
            PermissionDenied: the session holds no reader.
        """
        found = await asyncio.to_thread(_find, ctx.require(READER), params.path)
        if ctx.memory is not None:
            try:
                found = found.model_copy(update={"surveys": await remembered_surveys(ctx.memory)})
            except SessionTreeError as error:  # a report can be written without memory
                found = found.model_copy(update={"memory_problem": str(error)})
        return ToolResult(output=found.model_dump(mode="json", exclude_defaults=True))


def _find(reader: Reader, path: str) -> EarlierSurvey:
    folder, _, name = path.rpartition("/")
    try:
        # a listing tells a link from a file, opening does not
        entries = [entry for entry in reader.list(folder or ".") if entry.path.rpartition("/")[2] == name]
    except ToolError:
        entries = []
    if not entries:
        return EarlierSurvey(path=path, exists=False, is_report=False)
    return EarlierSurvey(
        path=path, exists=True, is_report=entries[0].type == "file" and _begins_as_report(reader, path)
    )


def _begins_as_report(reader: Reader, path: str) -> bool:
    try:
        with reader.open(path) as file:
            first_line = file.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    except (ToolError, OSError):
        return False
    return is_report(first_line.decode("latin-1"))
