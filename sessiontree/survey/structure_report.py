"""Structure report: the report's sections on complexity, duplicates, and imports between folders."""

from __future__ import annotations

from sessiontree.survey.cycles import cycles
from sessiontree.survey.duplicates import Duplicate, find_duplicates
from sessiontree.survey.finding import GroupFindings
from sessiontree.survey.markdown import code, more, table
from sessiontree.survey.prints import PRINT_LINES
from sessiontree.survey.spread import MOST_TOLD_APART

_FOLDERS_SHOWN = 200
_DUPLICATES_SHOWN = 20
_PLACES_SHOWN = 6
_LINKS_SHOWN = 40
_CYCLES_SHOWN = 20
_MEMBERS_SHOWN = 10


def complexity_section(findings: GroupFindings) -> list[str]:
    """Return the most complex functions, and median and maximum per top folder."""
    if not findings.complexity:
        return []
    lines = [
        "## Complexity",
        "",
        "Cyclomatic complexity (McCabe 1976): one more than the decisions of a function, each condition",
        "counted by itself, functions inside it by themselves. Python is measured on its syntax tree; where",
        "a tilde stands, and for functions called approximate, branching words and operators were counted.",
        "",
    ]
    for one in findings.most_complex:
        sign = "~" if one.approximate else ""
        lines.append(f"- {code(f'{one.path}:{one.line}')} {code(one.name)}: {sign}{one.complexity:,}")
    if findings.most_complex:
        lines.append("")
    spreads = sorted(findings.complexity.items(), key=lambda item: (-item[1].maximum, item[0]))
    shown = spreads[:_FOLDERS_SHOWN]
    rows = [
        (
            code(name, in_table=True),
            spread.functions,
            f"{spread.median:,}{' or more' if spread.median == MOST_TOLD_APART else ''}",
            spread.maximum,
            spread.approximate,
        )
        for name, spread in shown
    ]
    lines += table(("Folder", "Functions", "Median", "Maximum", "Approximate"), rows)
    return lines + more(len(spreads) - len(shown), "folders")


def duplicates_section(findings: GroupFindings) -> list[str]:
    """Return equal files, and stretches of text that stand in several places."""
    found = find_duplicates(findings.prints, _DUPLICATES_SHOWN)
    if not found.files and not found.stretches:
        return []
    needed = sorted(PRINT_LINES + one.window - 1 for one in findings.prints)
    lines = [
        "## Likely duplicates",
        "",
        f"{found.lines:,} lines of program code, at least, stand elsewhere too, equal files not counted.",
        "Found by fingerprints (winnowing): likely, not proven; the likeness may reach some lines further.",
        "Comments, white space, imports, and what stands in quotes don't count; files that say they are",
        f"generated are left out. Fewer than {PRINT_LINES} lines that count are never found, from",
        f"{needed[0]:,} on always; in the longest files from {needed[-1]:,} on.",
        "",
    ]
    lines += [f"- Equal files: {_group(one)}" for one in found.files[:_DUPLICATES_SHOWN]]
    lines += more(len(found.files) - _DUPLICATES_SHOWN, "groups of equal files")
    if found.files and found.stretches:
        lines.append("")
    lines += [f"- {_group(one)}" for one in found.stretches]
    return lines + more(findings.prints_dropped, "files that could not be compared")


def _group(one: Duplicate) -> str:
    shown = ", ".join(
        code(f"{place.path}:{place.first}-{place.last}") for place in one.places[:_PLACES_SHOWN]
    )
    rest = len(one.places) - _PLACES_SHOWN
    further = f" and {rest:,} more" if rest > 0 else ""
    return f"{one.saved:,} lines saved by one copy for {len(one.places):,}: {shown}{further}"


def folder_imports_section(findings: GroupFindings) -> list[str]:
    """Return which folder imports which, and which of them do so in a circle."""
    links = [
        (folder, to, count)
        for folder, targets in findings.folder_imports.items()
        for to, count in targets.items()
    ]
    if not links:
        return []
    links.sort(key=lambda link: (-link[2], link[0], link[1]))
    rows = [
        (f"{code(folder, in_table=True)} → {code(to, in_table=True)}", count)
        for folder, to, count in links[:_LINKS_SHOWN]
    ]
    lines = [
        "## Imports between folders",
        "",
        "How many files of a folder import from another one. Counted are imports whose file or package was",
        "found in this tree (Python, JavaScript and TypeScript by relative paths, quoted includes of the C",
        "family, Go, Rust within a crate, Java and its relatives), so the numbers are an approximation: what",
        "search paths and build files decide isn't known.",
        "",
        *table(("From → to", "Files"), rows),
        *more(len(links) - len(rows), "pairs of folders"),
    ]
    if findings.folder_imports_dropped:
        lines += ["", f"Pairs left out on the way counted {findings.folder_imports_dropped:,} files."]
    found = cycles(findings.folder_imports)
    if not found:
        return [*lines, "", "No folders import each other in a circle."]
    lines += ["", "Cycles; over its imports each of these folders leads to all others of its line:", ""]
    lines += map(_cycle, found[:_CYCLES_SHOWN])
    return lines + more(len(found) - _CYCLES_SHOWN, "cycles")


def _cycle(members: tuple[str, ...]) -> str:
    shown = ", ".join(map(code, members[:_MEMBERS_SHOWN]))
    rest = len(members) - _MEMBERS_SHOWN
    further = f" and {rest:,} more" if rest > 0 else ""
    return f"- {len(members):,} folders: {shown}{further}"
