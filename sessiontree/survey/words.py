"""Words: what the sessions of a survey say to each other, each as one JSON text.

The program gives Main a :class:`SurveyOrder`, Main gives each Branch a :class:`FolderOrder`, a Branch gives
each Worker a :class:`GroupOrder`. Results climb as :class:`GroupFindings`, told to a parent as
:class:`ChildWord`; Main's own last word is a :class:`LastWord`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.schema.result import result_schema_of
from sessiontree.survey.finding import GroupFindings, Totals
from sessiontree.survey.prints import WINDOW

FINDINGS_SCHEMA: dict[str, JsonValue] = result_schema_of(GroupFindings)
"""What a parent asks of its children: JSON Schema of :class:`GroupFindings`."""

End: TypeAlias = Literal["written", "kept", "failed"]


class _Word(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SurveyOrder(_Word):
    """What the program asks of Main."""

    name: str
    """What the report calls the workspace."""
    out: str
    """Where the report goes, relative to the workspace."""


class FolderOrder(_Word):
    """What Main asks of a Branch: one top folder, ``.`` for the files in the root itself."""

    folder: str
    leave_out: tuple[str, ...] = ()
    """Files that are not surveyed, such as the report itself."""
    roots: tuple[str, ...] = ()
    """Directories in which imported names are looked up, besides those around a file."""
    window: int = WINDOW
    """Of how many prints in a row one is kept."""


class GroupOrder(_Word):
    """What a Branch asks of a Worker."""

    paths: tuple[str, ...] = Field(min_length=1)
    roots: tuple[str, ...] = ()
    """As :class:`FolderOrder`."""
    window: int = WINDOW
    """As :class:`FolderOrder`."""


class ChildWord(BaseModel):
    """How a child ended, as its parent is told."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    session: str
    status: str
    summary: str
    output: GroupFindings | None = None


class LastWord(_Word):
    """What became of a survey."""

    survey: End
    """``written``; ``kept``: what stood in the report's place stays there; ``failed``: writing it failed."""
    path: str
    """Where the report stands, or would have stood, relative to the workspace."""
    reason: str = ""
    """Why it was not written."""
    report: str = ""
    """The report itself where it was not written."""
    totals: Totals = Totals()
    languages: dict[str, Totals] = Field(default_factory=dict)
    notes: int = 0
    unread: int = 0
    problems: int = 0
    records: int = 0
    """Put into memory."""
    records_dropped: int = 0
    """Left out, because there would have been too many."""
    memory_problem: str = ""
    """Why the survey's mark is not in memory; questions don't know of the survey then."""


def last_word_of(text: str) -> LastWord | None:
    """Return the last word a text is, None where it is said on the way."""
    try:
        return LastWord.model_validate_json(text)
    except ValidationError:
        return None
