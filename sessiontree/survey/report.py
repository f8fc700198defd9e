"""Report: the findings of a whole workspace as Markdown, what a newcomer asks first, the census after it.

Everything that comes from surveyed files, their names included, is in code spans: nothing of it is taken for
Markdown or HTML.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from sessiontree.survey.earlier import MARKER
from sessiontree.survey.source.census import Findings, Place, Totals
from sessiontree.survey.source.languages import find_role

_ROWS = 40
_PROJECTS = 12
_NAMES = 30
_COMMANDS = 12
_FILES = 10
_MAX_CHARS = 300
_RUST_OWN = frozenset(("std", "core", "alloc", "crate", "self", "super"))
_BACKTICKS = re.compile(r"`+")


def quote_code(text: str, *, in_table: bool = False, max_chars: int = _MAX_CHARS) -> str:
    r"""Return text as one code span, in which Markdown and HTML mean nothing.

    Invisible characters become escapes such as ``\u202e``; in a table ``|`` becomes one too.
    """
    text = text[: max_chars + 1]
    if not text.isprintable():
        text = "".join(map(_escape_letter, text))
    text = text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
    runs = {len(run) for run in _BACKTICKS.findall(text)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    if not text.strip(" "):
        return f"{fence}(empty){fence}"
    if text.startswith(("`", " ")) or text.endswith(("`", " ")):
        text = f" {text} "
    return fence + (text.replace("|", "\\x7c") if in_table else text) + fence


def _escape_letter(letter: str) -> str:
    if letter.isprintable():
        return letter
    is_blank = letter == "\t" or unicodedata.category(letter) == "Zs"
    return " " if is_blank else letter.encode("unicode_escape").decode("ascii")


def render(findings: Findings, name: str) -> str:
    """Return the report on what is called ``name``.

    Contract: pure; the same findings give the same text. Ends with one line feed.
    """
    sections = [f"{MARKER}\n# Survey of {quote_code(name)}"]
    for title, part in _PARTS.items():
        lines = "\n".join(part(findings))
        if lines:
            sections.append(f"## {title}\n\n{lines}")
    return "\n\n".join(sections) + "\n"


def _limit_lines(lines: Iterable[str], most: int, what: str, dropped: int = 0) -> Iterator[str]:
    """Yield the first lines, and how many more there are, those dropped before among them."""
    every = list(lines)
    yield from every[:most]
    if (count := len(every[most:]) + dropped) > 0:
        yield f"\nAnd {count:,} more {what}."


def _render_spans(texts: Sequence[str], most: int) -> str:
    """Return the first texts in a row, and how many more there are."""
    rest = len(texts) - most
    return ", ".join(map(quote_code, texts[:most])) + (f" and {rest:,} more" if rest > 0 else "")


def _format_place(one: Place) -> str:
    return quote_code(f"{one.path}#L{one.line}")


def _render_about(findings: Findings) -> Iterator[str]:
    said = [(one.path, one.text) for one in findings.about if one.text]
    named = [one for one in findings.projects if one.about or one.name]
    said += [(one.path, f"{one.name}: {one.about}" if one.about else one.name) for one in named]
    said.sort(key=lambda place: (place[0].count("/"), place))
    lines = (f"- {quote_code(path)}: {quote_code(text)}" for path, text in said)
    yield from _limit_lines(lines, _PROJECTS, "packages and manifests")


def _render_starts(findings: Findings) -> Iterator[str]:
    for project in findings.projects:
        for start in project.starts[:_COMMANDS]:
            yield f"- {quote_code(start)}, from {quote_code(project.path)}"
    for one in findings.starts[:_ROWS]:
        yield f"- {_format_place(one)} {quote_code(one.text)}"


def _render_public(findings: Findings) -> Iterator[str]:
    lines = (f"- {quote_code(one.path)}: {_render_spans(one.names, _NAMES)}" for one in findings.public)
    yield from _limit_lines(lines, _PROJECTS, "files with public names")


def _render_commands(findings: Findings) -> Iterator[str]:
    seen: set[str] = set()
    for project in [one for one in findings.projects if one.commands][:_PROJECTS]:
        fresh = [command for command in project.commands if command not in seen]
        seen.update(fresh)
        if fresh:
            yield f"- {quote_code(project.path)}: {_render_spans(fresh, _COMMANDS)}"


def _render_dependencies(findings: Findings) -> Iterator[str]:
    projects = [one for one in findings.projects if one.needs or one.needs_to_develop]
    lines = []
    for project in projects:
        lines.append(
            f"- {quote_code(project.path)}: {', '.join(map(quote_code, project.needs)) or 'nothing'}"
        )
        if project.needs_to_develop:
            lines[-1] += f"\n  - besides, to develop: {', '.join(map(quote_code, project.needs_to_develop))}"
    yield from _limit_lines(lines, _PROJECTS, "manifests with dependencies")
    outside = ", ".join(
        f"{quote_code(name)} ({files:,})" for name, files in _count_outside(findings)[:_NAMES]
    )
    if outside:
        yield f"- imported most often, with the number of files: {outside}"


def _count_outside(findings: Findings) -> list[tuple[str, int]]:
    """Return what is imported from outside the workspace, and by how many files, most first."""
    own = {part for folder in findings.folders for part in folder.split("/")}
    own |= {one.name.replace("-", "_").lower() for one in findings.projects}
    own |= sys.stdlib_module_names | _RUST_OWN
    counted = [item for item in findings.imports.items() if item[0] not in own and item[0].lower() not in own]
    return sorted(counted, key=lambda item: (-item[1], item[0]))


def _render_overview(findings: Findings) -> Iterator[str]:
    total = findings.totals
    programs = [name for name in findings.languages if find_role(name) == "code"]
    code_lines = sum(findings.languages[name].code for name in programs)
    yield f"- Files: {total.files:,} in {len(findings.folders):,} folders, {total.bytes:,} bytes"
    yield f"- Lines: {total.lines:,}, of which {code_lines:,} program code in {len(programs):,} languages"
    yield f"- Definitions: {total.functions:,} functions, {total.classes:,} classes and similar"
    yield f"- Notes: {len(findings.notes) + findings.notes_dropped:,} (TODO, FIXME, XXX, HACK)"
    yield f"- Left out: {findings.ignored:,} names (by .gitignore; version control, caches, links)"
    yield f"- Problems: {len(findings.problems) + findings.problems_dropped:,}"


_COLUMNS = ("files", "lines", "code", "comment", "blank", "functions", "classes", "bytes")


def _format_table(title: str, amounts: Mapping[str, Totals]) -> Iterator[str]:
    """Yield a table's lines: the first column to the left, the numbers to the right, most code first."""
    if not amounts:
        return
    yield f"| {title} | Files | Lines | Code | Comments | Blank | Functions | Classes | Bytes |"
    yield "|---|" + "---:|" * len(_COLUMNS)
    ordered = sorted(amounts.items(), key=lambda item: (-item[1].code, -item[1].files, item[0]))
    lines = []
    for name, one in ordered:
        cells = (quote_code(name, in_table=True), *(f"{getattr(one, key):,}" for key in _COLUMNS))
        lines.append(f"| {' | '.join(cells)} |")
    yield from _limit_lines(lines, _ROWS, f"{title.lower()}s")


def _format_functions(places: Sequence[Place], unit: str = "") -> Iterator[str]:
    yield from (f"- {_format_place(one)} {quote_code(one.name)}: {one.amount:,}{unit}" for one in places)


def _render_complex(findings: Findings) -> Iterator[str]:
    if findings.most_complex:
        yield "Complexity is one more than the places at which a function takes one of several ways.\n"
        yield from _format_functions(findings.most_complex)


def _render_files(findings: Findings) -> Iterator[str]:
    yield from (f"- {quote_code(one.path)}: {one.amount:,} lines" for one in findings.largest[:_FILES])


def _render_copies(findings: Findings) -> Iterator[str]:
    """Yield the functions whose bodies are equal but for white space, most lines first."""
    groups: defaultdict[str, list[Place]] = defaultdict(list)
    for one in findings.copies:
        groups[one.text].append(one)
    equal = [group for group in groups.values() if len(group) > 1]
    equal.sort(key=lambda group: (-group[0].amount * (len(group) - 1), group[0].path, group[0].line))
    lines = []
    for group in equal:
        places = ", ".join(f"{_format_place(one)} {quote_code(one.name)}" for one in group[:6])
        rest = f" and {len(group) - 6:,} more" if len(group) > 6 else ""
        lines.append(f"- {group[0].amount:,} lines, {len(group):,} times: {places}{rest}")
    yield from _limit_lines(lines, _ROWS, "groups")


def _render_notes(findings: Findings) -> Iterator[str]:
    lines = [f"- {_format_place(note)} {quote_code(note.text)}" for note in findings.notes]
    yield from _limit_lines(lines, len(lines), "notes", findings.notes_dropped)


def _render_problems(findings: Findings) -> Iterator[str]:
    lines = [f"- {quote_code(one.path)}: {quote_code(one.text)}" for one in findings.problems]
    yield from _limit_lines(lines, len(lines), "problems", findings.problems_dropped)


_PARTS: dict[str, Callable[[Findings], Iterator[str]]] = {
    "What this is": _render_about,
    "Where it starts": _render_starts,
    "Public API": _render_public,
    "How it is built and tested": _render_commands,
    "What it depends on": _render_dependencies,
    "Census": _render_overview,
    "Languages": lambda findings: _format_table("Language", findings.languages),
    "Folders": lambda findings: _format_table("Folder", findings.folders),
    "Longest functions": lambda findings: _format_functions(findings.longest, " lines"),
    "Most complex functions": _render_complex,
    "Largest files": _render_files,
    "Likely duplicates": _render_copies,
    "Notes": _render_notes,
    "Problems": _render_problems,
}
"""Title of each section to what gives its lines; a section without lines is left out."""
