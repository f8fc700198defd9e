"""Fitting: findings cut to a length a model is given, every cut counted."""

from __future__ import annotations

from sessiontree.contracts.jsonable import dump_readable
from sessiontree.survey.finding import GroupFindings

_LEAST_SHARE = 0.02


def fitted(findings: GroupFindings, max_chars: int) -> GroupFindings:
    """Return findings whose JSON text has at most ``max_chars`` characters.

    All lists shrink together, each keeping the first of its order and of imports the most frequent; totals
    are never touched. Where totals and folders alone are longer, the lists are empty and the text is longer.

    Args:
        findings: What to cut.
        max_chars: Longest ``dump_readable`` text.
    """
    share = 1.0
    cut = findings
    while len(dump_readable(cut.model_dump(mode="json"))) > max_chars and share > 0:
        share = share * 0.7 if share > _LEAST_SHARE else 0.0
        cut = _cut(findings, share)
    return cut


def _cut(findings: GroupFindings, share: float) -> GroupFindings:
    notes = findings.notes[: int(len(findings.notes) * share)]
    problems = findings.problems[: int(len(findings.problems) * share)]
    frequent = sorted(findings.imports.items(), key=lambda item: (-item[1], item[0]))
    imports = dict(sorted(frequent[: int(len(frequent) * share)]))
    return findings.model_copy(
        update={
            "largest_functions": findings.largest_functions[: int(len(findings.largest_functions) * share)],
            "largest_files": findings.largest_files[: int(len(findings.largest_files) * share)],
            "notes": notes,
            "notes_dropped": findings.notes_dropped + len(findings.notes) - len(notes),
            "problems": problems,
            "problems_dropped": findings.problems_dropped + len(findings.problems) - len(problems),
            "imports": imports,
            "imports_dropped": findings.imports_dropped
            + sum(findings.imports.values())
            - sum(imports.values()),
        }
    )
