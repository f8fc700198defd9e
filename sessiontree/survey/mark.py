"""Mark: the one record by which a later survey, or a question, knows that a survey left records in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from sessiontree.contracts.memory import MemoryRecord, Selection
from sessiontree.contracts.ports import Memory

MARK = "sessiontree:survey"
"""Source of every mark; no file's."""
MAX_MARKS = 100
"""Most surveys looked for: of one that nobody allowed to remove another, each leaves its own."""

_SAID = re.compile(r"survey of .*: (\d+) records of (\d+) files", re.DOTALL)


class RememberedSurvey(BaseModel):
    """What an earlier survey left in memory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree: str
    """Id of its tree."""
    records: int
    """How many, its mark not counted."""


def mark_text(name: str, records: int, files: int) -> str:
    """Return the text of a survey's mark.

    Args:
        name: What was surveyed.
        records: How many records it left.
        files: How many files were surveyed.
    """
    return f"survey of {name}: {records} records of {files} files"


async def remembered_surveys(memory: Memory) -> tuple[RememberedSurvey, ...]:
    """Return the finished surveys of this workspace that left records, oldest first.

    Raises:
        MemoryFailed: memory can't be asked.
    """
    return surveys_of(await memory.select(Selection(path=MARK), limit=MAX_MARKS))


def surveys_of(marks: Iterable[MemoryRecord]) -> tuple[RememberedSurvey, ...]:
    """Return the surveys whose marks these are, oldest first; what is no mark of ours counts for nothing."""
    surveys: dict[str, RememberedSurvey] = {}
    for mark in sorted(marks, key=lambda record: (record.created_at_ms, record.id)):
        said = _SAID.fullmatch(mark.text)
        if said is not None and mark.source == MARK and mark.trust == "session":
            tree = mark.scope.tree_id
            surveys[tree] = RememberedSurvey(tree=tree, records=int(said[1]))
    return tuple(surveys.values())
