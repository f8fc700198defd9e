"""Report: the findings of a whole tree as Markdown.

Everything that comes from surveyed files, their names included, stands in code spans (``markdown.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sessiontree.survey.finding import GroupFindings, Totals
from sessiontree.survey.languages import BINARY, language_named
from sessiontree.survey.markdown import code, more, table
from sessiontree.survey.structure_report import (
    complexity_section,
    duplicates_section,
    folder_imports_section,
)

FORMAT_VERSION = 1
MARKER = f"<!-- sessiontree survey report, format {FORMAT_VERSION} -->"
"""First line of every report; by it an earlier one is recognised."""

_MARKER = re.compile(r"<!-- sessiontree survey report, format \d{1,6} -->")
_FOLDERS_SHOWN = 200
_FILES_SHOWN = 10
_IMPORTS_SHOWN = 40


@dataclass(frozen=True, slots=True)
class ReportMeta:
    """What a report says beside the findings."""

    name: str
    """What was surveyed, such as the directory's name."""
    ignored: int = 0
    """Directories and links left out on purpose."""
    facts: tuple[tuple[str, str], ...] = ()
    """Further lines of the overview, label (plain words) and value, such as how many sessions worked."""


def is_report(first_line: str) -> bool:
    """Return whether a file's first line, without its end, is that of a report of any format version."""
    return _MARKER.fullmatch(first_line) is not None


def render(findings: GroupFindings, meta: ReportMeta) -> str:
    """Return the report: overview, languages, folders, functions, files, notes, imports, problems.

    Contract: pure; the same findings give the same text. Ends with one line feed.
    """
    sections = (
        _overview(findings, meta),
        _languages(findings),
        _folders(findings),
        _functions(findings),
        complexity_section(findings),
        _files(findings),
        duplicates_section(findings),
        _notes(findings),
        _imports(findings),
        folder_imports_section(findings),
        _problems(findings),
    )
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _overview(findings: GroupFindings, meta: ReportMeta) -> list[str]:
    total = findings.totals
    written = [name for name in findings.languages if _role(name) == "code"]
    code_lines = sum(findings.languages[name].code for name in written)
    lines = [
        MARKER,
        f"# Survey of {code(meta.name)}",
        "",
        f"- Files: {total.files:,} in {len(findings.folders):,} top folders, {total.bytes:,} bytes",
        f"- Lines: {total.lines:,}, of which {code_lines:,} program code; languages: {len(written):,}",
        f"- Definitions: {total.functions:,} functions, {total.classes:,} classes and the like",
        f"- Notes: {len(findings.notes) + findings.notes_dropped:,} (TODO, FIXME, XXX, HACK)",
        f"- Left out: {meta.ignored:,} directories and links (version control, caches, builds, packages)",
        f"- Problems: {len(findings.problems) + findings.problems_dropped:,}",
    ]
    return lines + [f"- {label}: {code(value)}" for label, value in meta.facts]


def _role(language: str) -> str:
    return "binary" if language == BINARY else language_named(language).role


_COLUMNS = ("Files", "Lines", "Code", "Comments", "Blank", "Functions", "Classes", "Bytes")


def _row(name: str, totals: Totals) -> tuple[str | int, ...]:
    return (
        code(name, in_table=True),
        totals.files,
        totals.lines,
        totals.code,
        totals.comment,
        totals.blank,
        totals.functions,
        totals.classes,
        totals.bytes,
    )


def _by_size(amounts: Mapping[str, Totals]) -> list[tuple[str, Totals]]:
    return sorted(amounts.items(), key=lambda item: (-item[1].code, -item[1].files, item[0]))


def _languages(findings: GroupFindings) -> list[str]:
    if not findings.languages:
        return []
    rows = [_row(name, totals) for name, totals in _by_size(findings.languages)]
    return [
        "## Languages",
        "",
        "Code is every line that is neither comment nor blank.",
        "",
        *table(("Language", *_COLUMNS), rows),
    ]


def _folders(findings: GroupFindings) -> list[str]:
    if not findings.folders:
        return []
    folders = _by_size(findings.folders)
    rows = [_row(name, totals) for name, totals in folders[:_FOLDERS_SHOWN]]
    lines = ["## Folders", "", *table(("Folder", *_COLUMNS), rows)]
    return lines + more(len(folders) - len(rows), "folders")


def _functions(findings: GroupFindings) -> list[str]:
    if not findings.largest_functions:
        return []
    return [
        "## Largest functions",
        "",
        *(
            f"- {code(f'{one.path}#L{one.line}')} {code(one.name)}: {one.lines:,} lines"
            for one in findings.largest_functions
        ),
    ]


def _files(findings: GroupFindings) -> list[str]:
    if not findings.largest_files:
        return []
    shown = findings.largest_files[:_FILES_SHOWN]
    return [
        "## Largest text files",
        "",
        *(f"- {code(one.path)}: {one.lines:,} lines, {one.bytes:,} bytes" for one in shown),
    ]


def _notes(findings: GroupFindings) -> list[str]:
    if not findings.notes and not findings.notes_dropped:
        return []
    lines = ["## Notes", "", *(f"- {code(note.citation)} {code(note.text)}" for note in findings.notes)]
    return lines + more(findings.notes_dropped, "notes")


def _imports(findings: GroupFindings) -> list[str]:
    if not findings.imports:
        return []
    ordered = sorted(findings.imports.items(), key=lambda item: (-item[1], item[0]))
    shown = ordered[:_IMPORTS_SHOWN]
    lines = [
        "## Most imported packages",
        "",
        *table(("Package", "Files"), ((code(name, in_table=True), count) for name, count in shown)),
    ]
    return lines + more(len(ordered) - len(shown), "packages")


def _problems(findings: GroupFindings) -> list[str]:
    if not findings.problems and not findings.problems_dropped:
        return []
    lines = ["## Problems", "", *(f"- {code(one.path)}: {code(one.text)}" for one in findings.problems)]
    return lines + more(findings.problems_dropped, "problems")
