"""The command ``sessiontree replay``: whether the rules lead to the facts of a stored tree again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from sessiontree.api.stored.journaled_trees import replay_tree
from sessiontree.cli.screen import RichScreen, format_count
from sessiontree.cli.tree import complete_tree_id, find_journal, find_state_dir
from sessiontree.contracts.errors import TreeNotFound
from sessiontree.contracts.reports.replay_report import ReplayDifference, ReplayReport
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.truncation import cut_line

DIFFERS = 1
"""Exit code if a fact differs, or the journal is damaged."""
_VALUE_CHARS = 400


def replay(
    screen: RichScreen, *, tree_id: str, path: Path | None, state_dir: Path | None, as_json: bool
) -> int:
    """Replay a tree and return the exit code.

    With ``as_json`` one object: the members of :class:`ReplayReport`, ``state_dir`` and ``matches``.

    Raises:
        TreeNotFound: no journal holds the tree.
        JournalError: it can't be read.
    """
    given = find_state_dir(path, state_dir)
    try:
        tree_id = complete_tree_id(given, tree_id)
        place = find_journal(given, tree_id)
        report = replay_tree(place, tree_id)
    except TreeNotFound as error:
        if error.missing == "tree":
            raise
        # its exit code would say that there is a difference
        raise TreeNotFound(tree_id, f"nothing ran here yet: {error}") from error
    if as_json:
        screen.raw(dump_json({"state_dir": str(place), **asdict(report), "matches": report.matches}))
    else:
        _show(screen, report)
    return 0 if report.matches else DIFFERS


def _show(screen: RichScreen, report: ReplayReport) -> None:
    read = format_count(report.facts, "fact")
    if not report.is_decided:
        screen.line(
            f"tree {report.tree_id}: {read} of another release ({report.release}) can be read; its rules are "
            "not those of this release, so nothing was decided again"
        )
    else:
        given = f", {report.given} taken as recorded" if report.given else ""
        screen.line(f"tree {report.tree_id}: {report.compared} of {read} compared{given}")
    if report.damage is not None:
        screen.line(f"the journal is damaged, and the replay ends before: {report.damage}")
    if report.difference is not None:
        _show_difference(screen, report.difference)
    elif report.is_decided:
        screen.line("no difference")


def _show_difference(screen: RichScreen, found: ReplayDifference) -> None:
    where = f"session {found.session}" if found.session else "the tree itself"
    what = f"fact {found.seq} ({found.kind})" if found.kind else f"after fact {found.seq - 1}"
    screen.line(
        f"first difference: {what} of {where}{f', {found.field}' if found.field else ''}: {found.reason}"
    )
    screen.line(f"  expected: {_format_value(found.expected)}")
    screen.line(f"  found:    {_format_value(found.found)}")


def _format_value(value: JsonValue) -> str:
    return cut_line(dump_json(value), _VALUE_CHARS)
