"""Joining: from files to what they hold together, and from two groups to one.

Joining is exact: totals add up, and each bounded list keeps the first entries of one fixed order and counts
the rest, so the result does not depend on how files were grouped or in which order groups came back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from sessiontree.survey.finding import (
    COMPLEX_KEPT,
    LARGEST_KEPT,
    NOTES_KEPT,
    PROBLEMS_KEPT,
    ComplexFunction,
    FileFinding,
    GroupFindings,
    LargeFile,
    LongFunction,
    Problem,
    Totals,
    top_folder,
)
from sessiontree.survey.imports import package_of
from sessiontree.survey.notes import Note
from sessiontree.survey.prints import FilePrints
from sessiontree.survey.spread import Spread, spread_of
from sessiontree.survey.whereabouts import parent_of

T = TypeVar("T")


def findings_of(files: Iterable[FileFinding]) -> GroupFindings:
    """Return what files hold together; their order does not matter."""
    files = list(files)
    languages: dict[str, list[FileFinding]] = {}
    folders: dict[str, list[FileFinding]] = {}
    imports: Counter[str] = Counter()
    folder_imports: dict[str, Counter[str]] = {}
    for file in files:
        folders.setdefault(top_folder(file.path), []).append(file)
        if file.kind != "unread":
            languages.setdefault(file.language, []).append(file)
        packages = {package_of(file.language, module) for module in file.imports} - {None}
        imports.update(package for package in packages if package is not None)
        if file.imports_from:
            folder_imports.setdefault(parent_of(file.path), Counter()).update(file.imports_from)
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
        most_complex=_first(COMPLEX_KEPT, _complex(files), _complex_order)[0],
        complexity=_spreads(folders),
        largest_files=_first(LARGEST_KEPT, _texts(files), _file_order)[0],
        notes=notes,
        notes_dropped=notes_dropped + sum(file.notes_dropped for file in files),
        imports=dict(sorted(imports.items())),
        folder_imports=_sorted(folder_imports),
        prints=tuple(sorted((file.prints for file in files if file.prints is not None), key=_path)),
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
    folder_imports = {folder: Counter(found) for folder, found in a.folder_imports.items()}
    for folder, found in b.folder_imports.items():
        folder_imports.setdefault(folder, Counter()).update(found)
    return GroupFindings(
        files=a.files + b.files,
        unread=a.unread + b.unread,
        languages=_sum(a.languages, b.languages),
        folders=_sum(a.folders, b.folders),
        largest_functions=_first(LARGEST_KEPT, functions, _function_order)[0],
        most_complex=_first(COMPLEX_KEPT, (*a.most_complex, *b.most_complex), _complex_order)[0],
        complexity={
            name: a.complexity.get(name, Spread()) + b.complexity.get(name, Spread())
            for name in sorted(a.complexity.keys() | b.complexity.keys())
        },
        largest_files=_first(LARGEST_KEPT, (*a.largest_files, *b.largest_files), _file_order)[0],
        notes=notes,
        notes_dropped=a.notes_dropped + b.notes_dropped + notes_dropped,
        imports=dict(sorted(imports.items())),
        imports_dropped=a.imports_dropped + b.imports_dropped,
        folder_imports=_sorted(folder_imports),
        folder_imports_dropped=a.folder_imports_dropped + b.folder_imports_dropped,
        prints=tuple(sorted((*a.prints, *b.prints), key=_path)),
        prints_dropped=a.prints_dropped + b.prints_dropped,
        problems=problems,
        problems_dropped=a.problems_dropped + b.problems_dropped + problems_dropped,
        records=a.records + b.records,
        records_dropped=a.records_dropped + b.records_dropped,
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


def _complex(files: list[FileFinding]) -> Iterable[ComplexFunction]:
    for file in files:
        for one in file.most_complex_functions(COMPLEX_KEPT):
            yield ComplexFunction(
                path=file.path,
                line=one.line,
                name=one.name,
                complexity=one.complexity,
                approximate=not file.is_parsed,
            )


def _spreads(folders: dict[str, list[FileFinding]]) -> dict[str, Spread]:
    spreads = {}
    for name in sorted(folders):
        known = [(one.complexity, file.is_parsed) for file in folders[name] for one in file.definitions]
        measured = [(complexity, is_parsed) for complexity, is_parsed in known if complexity]
        if measured:
            approximate = sum(not is_parsed for _, is_parsed in measured)
            spreads[name] = spread_of((complexity for complexity, _ in measured), approximate)
    return spreads


def _sorted(folder_imports: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {folder: dict(sorted(folder_imports[folder].items())) for folder in sorted(folder_imports)}


def _path(one: FilePrints) -> str:
    return one.path


def _texts(files: list[FileFinding]) -> Iterable[LargeFile]:
    for file in files:
        if file.kind == "text":
            yield LargeFile(path=file.path, lines=file.lines, bytes=file.bytes)


def _function_order(one: LongFunction) -> tuple[int | str, ...]:
    return (-one.lines, one.path, one.line, one.name)


def _complex_order(one: ComplexFunction) -> tuple[int | str, ...]:
    return (-one.complexity, one.path, one.line, one.name)


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
