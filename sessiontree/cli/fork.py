"""The command ``sessiontree fork``: a new tree of the first facts of another one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sessiontree.api.stored.journaled_trees import fork_tree
from sessiontree.cli.screen import RichScreen, format_count
from sessiontree.cli.tree import complete_tree_id, find_journal, find_state_dir
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.claim import state_dir_of_journal


def fork(
    screen: RichScreen,
    *,
    tree_id: str,
    path: Path | None,
    at: int | None,
    replace: Sequence[str] | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Fork a stored tree and return the exit code.

    With ``as_json`` one object: ``state_dir``, ``tree_id``, ``forked_from``, ``forked_at``, ``records``.

    Raises:
        TreeNotFound: no journal holds the tree.
        ConfigError: no tree can be forked at this fact, or a child can't be replaced.
        JournalError: it can't be read, or no journal can be written.
    """
    given = find_state_dir(path, state_dir)
    tree_id = complete_tree_id(given, tree_id)
    place = find_journal(given, tree_id)
    summary = fork_tree(place, tree_id, at, parse_tasks(replace or ()))
    if as_json:
        screen.raw(dump_json({"state_dir": str(state_dir_of_journal(place)), **asdict(summary)}))
        return 0
    screen.line(
        f"tree {summary.tree_id}: forked from {summary.forked_from} at fact {summary.forked_at}, "
        f"{format_count(summary.records, 'fact')}"
    )
    again = f"sessiontree resume {summary.tree_id}"
    if state_dir is not None:
        again += f" --state-dir {shlex.quote(str(state_dir))}"
    elif path is not None:
        again += f" {shlex.quote(str(path))}"
    screen.line(f"go on with: {again}")
    return 0


def parse_tasks(replace: Sequence[str]) -> dict[str, str]:
    """Return the new tasks by session, of options ``SESSION=TASK``.

    Raises:
        ConfigError: an option has no ``=``, or names a session twice.
    """
    tasks: dict[str, str] = {}
    for each in replace:
        session, has_task, task = each.partition("=")
        if not has_task:
            raise ConfigError(f"--replace {each!r}: give SESSION=TASK, such as main/w7='count again'")
        if session in tasks:
            raise ConfigError(f"--replace names {session} twice; give one task")
        tasks[session] = task
    return tasks
