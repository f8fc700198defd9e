"""Fitting: findings cut to a length a model is given, every cut counted."""

from __future__ import annotations

from sessiontree.contracts.jsonable import dump_readable
from sessiontree.survey.finding import GroupFindings
from sessiontree.survey.prints import MAX_LEVEL, WINDOW, FilePrints

_LEAST_SHARE = 0.02


def fitted(findings: GroupFindings, max_chars: int) -> GroupFindings:
    """Return findings whose JSON text has at most ``max_chars`` characters.

    Prints are thinned first, though not to less than half of the length: those of the files with the smallest
    window first, then those of the shortest files are left out. Then all lists shrink together, each keeping
    the first of its order, of imports and folder imports the most frequent; totals are never touched. Where
    totals and folders alone are longer, the lists are empty and the text is longer.

    Args:
        findings: What to cut.
        max_chars: Longest ``dump_readable`` text.
    """
    chars = _chars_of(findings)
    if chars <= max_chars:
        return findings
    prints = sum(map(_print_chars, findings.prints))
    findings = _thinned(findings, max(max_chars // 2, max_chars - (chars - prints)))
    share = 1.0
    cut = findings
    while _chars_of(cut) > max_chars and share > 0:
        share = share * 0.7 if share > _LEAST_SHARE else 0.0
        cut = _cut(findings, share)
    return cut


def _chars_of(findings: GroupFindings) -> int:
    return len(dump_readable(findings.model_dump(mode="json")))


def _print_chars(prints: FilePrints) -> int:
    """Return the length of one file's prints as text, with the comma after them."""
    return len(dump_readable(prints.model_dump(mode="json"))) + 1


def _thinned(findings: GroupFindings, max_chars: int) -> GroupFindings:
    """Return findings whose prints together are at most so long."""
    kept = list(findings.prints)
    window = min((one.window for one in kept), default=WINDOW)
    while window < WINDOW << MAX_LEVEL and sum(map(_print_chars, kept)) > max_chars:
        window *= 2
        kept = [one.thinned(window) for one in kept]
    # what compares least goes first
    kept.sort(key=lambda one: (-one.lines, one.path))
    chars = sum(map(_print_chars, kept))
    while kept and chars > max_chars:
        chars -= _print_chars(kept.pop())
    return findings.model_copy(
        update={
            "prints": tuple(sorted(kept, key=lambda one: one.path)),
            "prints_dropped": findings.prints_dropped + len(findings.prints) - len(kept),
        }
    )


def _cut(findings: GroupFindings, share: float) -> GroupFindings:
    def part(length: int) -> int:
        return int(length * share)

    notes = findings.notes[: part(len(findings.notes))]
    problems = findings.problems[: part(len(findings.problems))]
    prints = findings.prints if share else ()
    frequent = sorted(findings.imports.items(), key=lambda item: (-item[1], item[0]))
    imports = dict(sorted(frequent[: part(len(frequent))]))
    folder_imports, kept = _most_frequent(findings.folder_imports, share)
    return findings.model_copy(
        update={
            "largest_functions": findings.largest_functions[: part(len(findings.largest_functions))],
            "most_complex": findings.most_complex[: part(len(findings.most_complex))],
            "largest_files": findings.largest_files[: part(len(findings.largest_files))],
            "notes": notes,
            "notes_dropped": findings.notes_dropped + len(findings.notes) - len(notes),
            "problems": problems,
            "problems_dropped": findings.problems_dropped + len(findings.problems) - len(problems),
            "imports": imports,
            "imports_dropped": findings.imports_dropped
            + sum(findings.imports.values())
            - sum(imports.values()),
            "folder_imports": folder_imports,
            "folder_imports_dropped": findings.folder_imports_dropped
            + sum(sum(found.values()) for found in findings.folder_imports.values())
            - kept,
            "prints": prints,
            "prints_dropped": findings.prints_dropped + len(findings.prints) - len(prints),
        }
    )


def _most_frequent(
    folder_imports: dict[str, dict[str, int]], share: float
) -> tuple[dict[str, dict[str, int]], int]:
    """Return a share of the folder imports, those of most files, and the sum of their numbers."""
    links = [(folder, to, count) for folder, found in folder_imports.items() for to, count in found.items()]
    links.sort(key=lambda link: (-link[2], link[0], link[1]))
    kept: dict[str, dict[str, int]] = {}
    links = links[: int(len(links) * share)]
    for folder, to, count in sorted(links):
        kept.setdefault(folder, {})[to] = count
    return kept, sum(count for _, _, count in links)
