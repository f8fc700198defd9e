"""Findings: what one file holds, what many hold together, and how findings merge.

Merging is exact: totals add up, and each bounded list keeps the first entries of one fixed order and counts
the rest, so the result does not depend on how files were grouped or in which order groups came back.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.survey.definitions import Definition
from sessiontree.survey.imports import package_of
from sessiontree.survey.notes import Note

FileKind: TypeAlias = Literal["text", "binary", "unread"]

MAX_DEFINITIONS_PER_FILE = 2_000
MAX_NOTES_PER_FILE = 1_000
LARGEST_KEPT = 25
"""Longest functions and largest files a group names."""
NOTES_KEPT = 300
PROBLEMS_KEPT = 100

T = TypeVar("T")


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
    problem: str = ""
    """What could not be read, decoded or parsed; empty when all could."""

    def largest_functions(self, count: int) -> tuple[Definition, ...]:
        """Return the longest functions, longest first, ties by line."""
        functions = (definition for definition in self.definitions if definition.kind == "function")
        return tuple(heapq.nsmallest(count, functions, key=lambda one: (-one.lines, one.line)))


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
    problems: tuple[Problem, ...] = ()
    """By path and text; at most 100."""
    problems_dropped: int = Field(default=0, ge=0)

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


def findings_of(files: Iterable[FileFinding]) -> GroupFindings:
    """Return what files hold together; their order does not matter."""
    files = list(files)
    languages: dict[str, list[FileFinding]] = {}
    folders: dict[str, list[FileFinding]] = {}
    imports: Counter[str] = Counter()
    for file in files:
        folders.setdefault(top_folder(file.path), []).append(file)
        if file.kind != "unread":
            languages.setdefault(file.language, []).append(file)
        packages = {package_of(file.language, module) for module in file.imports} - {None}
        imports.update(package for package in packages if package is not None)
    notes, notes_dropped = _first(NOTES_KEPT, (note for file in files for note in file.notes), _note_order)
    problems, problems_dropped = _first(
        PROBLEMS_KEPT,
        (Problem(path=file.path, text=file.problem) for file in files if file.problem),
        _problem_order,
    )
    return GroupFindings(
        files=len(files),
        unread=sum(1 for file in files if file.kind == "unread"),
        languages={name: _totals(languages[name]) for name in sorted(languages)},
        folders={name: _totals(folders[name]) for name in sorted(folders)},
        largest_functions=_first(LARGEST_KEPT, _functions(files), _function_order)[0],
        largest_files=_first(LARGEST_KEPT, _texts(files), _file_order)[0],
        notes=notes,
        notes_dropped=notes_dropped + sum(file.notes_dropped for file in files),
        imports=dict(sorted(imports.items())),
        problems=problems,
        problems_dropped=problems_dropped,
    )


def merge(a: GroupFindings, b: GroupFindings) -> GroupFindings:
    """Return what two groups hold together; they must not share a file.

    Contract: associative and commutative, ``GroupFindings()`` changes nothing, and merging the findings of
    two groups equals the findings of their union.
    """
    notes, notes_dropped = _first(NOTES_KEPT, (*a.notes, *b.notes), _note_order)
    problems, problems_dropped = _first(PROBLEMS_KEPT, (*a.problems, *b.problems), _problem_order)
    functions = (*a.largest_functions, *b.largest_functions)
    imports = Counter(a.imports)
    imports.update(b.imports)
    return GroupFindings(
        files=a.files + b.files,
        unread=a.unread + b.unread,
        languages=_sum(a.languages, b.languages),
        folders=_sum(a.folders, b.folders),
        largest_functions=_first(LARGEST_KEPT, functions, _function_order)[0],
        largest_files=_first(LARGEST_KEPT, (*a.largest_files, *b.largest_files), _file_order)[0],
        notes=notes,
        notes_dropped=a.notes_dropped + b.notes_dropped + notes_dropped,
        imports=dict(sorted(imports.items())),
        imports_dropped=a.imports_dropped + b.imports_dropped,
        problems=problems,
        problems_dropped=a.problems_dropped + b.problems_dropped + problems_dropped,
    )


def _first(
    count: int, items: Iterable[T], order: Callable[[T], tuple[int | str, ...]]
) -> tuple[tuple[T, ...], int]:
    """Return the first items of an order, and how many were left out."""
    ordered = sorted(items, key=order)
    return tuple(ordered[:count]), max(0, len(ordered) - count)


def _functions(files: list[FileFinding]) -> Iterable[LongFunction]:
    for file in files:
        for one in file.largest_functions(LARGEST_KEPT):
            yield LongFunction(path=file.path, line=one.line, name=one.name, lines=one.lines)


def _texts(files: list[FileFinding]) -> Iterable[LargeFile]:
    for file in files:
        if file.kind == "text":
            yield LargeFile(path=file.path, lines=file.lines, bytes=file.bytes)


def _function_order(one: LongFunction) -> tuple[int | str, ...]:
    return (-one.lines, one.path, one.line, one.name)


def _file_order(one: LargeFile) -> tuple[int | str, ...]:
    return (-one.lines, one.path, one.bytes)


def _note_order(one: Note) -> tuple[int | str, ...]:
    return (one.path, one.line, one.text)


def _problem_order(one: Problem) -> tuple[int | str, ...]:
    return (one.path, one.text)


def _totals(files: list[FileFinding]) -> Totals:
    return Totals(
        files=len(files),
        bytes=sum(file.bytes for file in files),
        lines=sum(file.lines for file in files),
        code=sum(file.code for file in files),
        comment=sum(file.comment for file in files),
        blank=sum(file.blank for file in files),
        functions=sum(file.functions for file in files),
        classes=sum(file.classes for file in files),
    )


def _sum(a: dict[str, Totals], b: dict[str, Totals]) -> dict[str, Totals]:
    return {name: a.get(name, Totals()) + b.get(name, Totals()) for name in sorted(a.keys() | b.keys())}
