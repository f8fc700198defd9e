"""Listed: requests as the journal has them, read beside a runtime or without one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessiontree.cli.approval_lines import lines_of
from sessiontree.cli.connect import HOW_TO_RESUME
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree_report import portrait_of
from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.jsonable import dump_json, dump_readable
from sessiontree.journal.journal import Journal
from sessiontree.tree.receipt import request_of


@dataclass(frozen=True, slots=True)
class _Listed:
    """A request as the journal has it."""

    members: dict[str, Any]
    shown: ApprovalRequest | None
    """As it waits for a person; None where it does not."""


def show_listed(
    screen: RichScreen,
    place: Path,
    trees: Mapping[Path, Iterable[str]],
    live: Sequence[str],
    as_json: bool,
    everything: bool,
) -> None:
    """Show what the journal tells of requests.

    Args:
        screen: Where it is shown.
        place: The state directory.
        trees: Ids of the trees, by the directory of their journal.
        live: Ids of those that a runtime has open.
        as_json: Whether a program reads it.
        everything: Whether to show every request there ever was, not only those that wait for a person.

    Raises:
        JournalError: there is no journal, no such tree, or it can't be read.
    """
    listed: list[_Listed] = []
    for directory, names in trees.items():
        with Journal.open(directory, read_only=True) as journal:
            listed += [each for tree in names for each in _requests(journal, tree, everything)]
    if as_json:
        members = [each.members for each in listed]
        screen.raw(dump_json({"state_dir": str(place), "live": list(live), "approvals": members}))
        return
    if everything:
        screen.table(
            ("request", "of", "approval for", "decision", "by", "arguments"), [_row(each) for each in listed]
        )
    else:
        for each in listed:
            for line in [] if each.shown is None else lines_of(each.shown, each.members["tree"]):
                screen.line(line)
    waiting = [each for each in listed if each.shown is not None]
    screen.line(f"{len(waiting)} of {len(listed)} wait for a person" if everything else _count(waiting))
    for tree in sorted({each.members["tree"] for each in waiting} - set(live)):
        screen.line(f"nobody can be answered: no runtime has tree {tree} open; {HOW_TO_RESUME}")


def _requests(journal: Journal, tree_id: str, everything: bool) -> list[_Listed]:
    portrait = portrait_of(journal, tree_id)
    listed = []
    for line, members in zip(portrait.approvals, portrait.to_json()["approvals"], strict=True):
        shown = request_of(portrait.state, line.asked.request_id)
        if shown is not None or everything:
            asked = None if shown is None else shown.asked
            more = {"expires_at_ms": line.asked.expires_at_ms, "asked": asked}
            listed.append(_Listed({"tree": tree_id, **members, **more}, shown))
    return listed


def _row(listed: _Listed) -> tuple[str, ...]:
    given = listed.members
    arguments = dump_readable(given["arguments"])
    return (
        given["request_id"], given["session"], given["tool"], given["decision"], given["by"], arguments
    )  # fmt: skip


def _count(waiting: Sequence[_Listed]) -> str:
    return (
        f"{len(waiting)} requests wait for a person" if len(waiting) != 1 else "1 request waits for a person"
    )
