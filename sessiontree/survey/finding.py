"""Findings: what one file holds, and what many hold together; how they join is ``joining.py``."""

from __future__ import annotations

import heapq
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.survey.definitions import Definition
from sessiontree.survey.notes import Note
from sessiontree.survey.prints import FilePrints
from sessiontree.survey.spread import Spread

FileKind: TypeAlias = Literal["text", "binary", "unread"]

MAX_DEFINITIONS_PER_FILE = 2_000
MAX_NOTES_PER_FILE = 1_000
LARGEST_KEPT = 25
"""Longest functions and largest files a group names."""
COMPLEX_KEPT = 20
"""Most complex functions a group names."""
NOTES_KEPT = 300
PROBLEMS_KEPT = 100


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileFinding(_Wire):
    """What one file holds."""

    path: str
    kind: FileKind
    language: str
    """Name in the language table; ``Binary``, ``Other text``, or empty for a file that was not read."""
    bytes: int = Field(ge=0)
    """Size of the whole file, also where only its head was read."""
    lines: int = Field(default=0, ge=0)
    """``lines == code + comment + blank``; of the part that was read."""
    code: int = Field(default=0, ge=0)
    comment: int = Field(default=0, ge=0)
    blank: int = Field(default=0, ge=0)
    functions: int = Field(default=0, ge=0)
    classes: int = Field(default=0, ge=0)
    definitions: tuple[Definition, ...] = ()
    """Functions and classes by line; of more than 2,000 the longest."""
    notes: tuple[Note, ...] = ()
    """By line."""
    notes_dropped: int = Field(default=0, ge=0)
    imports: tuple[str, ...] = ()
    """Module names as written, each once, in order."""
    references: tuple[str, ...] = ()
    """What tells which folders it imports from, see ``folder_imports.py``."""
    imports_from: tuple[str, ...] = ()
    """Folders of the surveyed tree its imports lead to, without its own, ascending."""
    is_parsed: bool = False
    """Whether definitions and complexities come from a syntax tree."""
    prints: FilePrints | None = None
    """By which stretches of it are found again elsewhere; of program code that no program wrote."""
    problem: str = ""
    """What could not be read, decoded or parsed; empty when all could."""

    def largest_functions(self, count: int) -> tuple[Definition, ...]:
        """Return the longest functions, longest first, ties by line."""
        functions = (definition for definition in self.definitions if definition.kind == "function")
        return tuple(heapq.nsmallest(count, functions, key=lambda one: (-one.lines, one.line)))

    def most_complex_functions(self, count: int) -> tuple[Definition, ...]:
        """Return the most complex functions, those of complexity 1 left out, ties by line."""
        functions = (definition for definition in self.definitions if definition.complexity > 1)
        return tuple(heapq.nsmallest(count, functions, key=lambda one: (-one.complexity, one.line)))


class Totals(_Wire):
    """Amounts of a set of files; add up."""

    files: int = Field(default=0, ge=0)
    bytes: int = Field(default=0, ge=0)
    lines: int = Field(default=0, ge=0)
    code: int = Field(default=0, ge=0)
    comment: int = Field(default=0, ge=0)
    blank: int = Field(default=0, ge=0)
    functions: int = Field(default=0, ge=0)
    classes: int = Field(default=0, ge=0)

    def __add__(self, other: Totals) -> Totals:
        """Return the member-wise sum."""
        return Totals(
            files=self.files + other.files,
            bytes=self.bytes + other.bytes,
            lines=self.lines + other.lines,
            code=self.code + other.code,
            comment=self.comment + other.comment,
            blank=self.blank + other.blank,
            functions=self.functions + other.functions,
            classes=self.classes + other.classes,
        )


class LongFunction(_Wire):
    """A function among the longest."""

    path: str
    line: int = Field(ge=1)
    name: str
    lines: int = Field(ge=1)


class ComplexFunction(_Wire):
    """A function among the most complex."""

    path: str
    line: int = Field(ge=1)
    name: str
    complexity: int = Field(ge=1)
    approximate: bool
    """Whether words were counted, not the decisions of a syntax tree."""


class LargeFile(_Wire):
    """A text file among those with most lines."""

    path: str
    lines: int = Field(ge=0)
    bytes: int = Field(ge=0)


class Problem(_Wire):
    """What could not be read, decoded or parsed of one file or folder."""

    path: str
    text: str


class GroupFindings(_Wire):
    """What a group of files holds: one Worker's answer, and every merge of such answers."""

    files: int = Field(default=0, ge=0)
    """All files of the group; those of ``languages`` and ``unread`` together."""
    unread: int = Field(default=0, ge=0)
    languages: dict[str, Totals] = Field(default_factory=dict)
    """By language name; sorted."""
    folders: dict[str, Totals] = Field(default_factory=dict)
    """By top folder, ``.`` for files in the root itself; unread files count here too; sorted."""
    largest_functions: tuple[LongFunction, ...] = ()
    """Longest first, ties by path, line and name; at most 25."""
    most_complex: tuple[ComplexFunction, ...] = ()
    """Most complex first, ties by path, line and name; at most 20."""
    complexity: dict[str, Spread] = Field(default_factory=dict)
    """By top folder with functions whose complexity is known; sorted."""
    largest_files: tuple[LargeFile, ...] = ()
    """Most lines first, ties by path; at most 25."""
    notes: tuple[Note, ...] = ()
    """By path and line; at most 300."""
    notes_dropped: int = Field(default=0, ge=0)
    """Notes found beyond those."""
    imports: dict[str, int] = Field(default_factory=dict)
    """Package to the number of files that import it; sorted by name."""
    imports_dropped: int = Field(default=0, ge=0)
    """Sum of the numbers left out."""
    folder_imports: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Folder to the folders it imports from and how many of its own files do; both sorted, none to itself."""
    folder_imports_dropped: int = Field(default=0, ge=0)
    """Sum of the numbers left out."""
    prints: tuple[FilePrints, ...] = ()
    """By path; files without prints are left out."""
    prints_dropped: int = Field(default=0, ge=0)
    """Files whose prints were left out."""
    problems: tuple[Problem, ...] = ()
    """By path and text; at most 100."""
    problems_dropped: int = Field(default=0, ge=0)
    records: int = Field(default=0, ge=0)
    """Put into memory by the sessions that gathered this."""
    records_dropped: int = Field(default=0, ge=0)
    """Left out of memory, because there would have been too many."""

    @property
    def totals(self) -> Totals:
        """Everything together."""
        total = Totals()
        for part in self.folders.values():
            total += part
        return total


def top_folder(path: str) -> str:
    """Return the first part of a path, ``.`` for a file in the root itself."""
    folder, slash, _ = path.partition("/")
    return folder if slash else "."
