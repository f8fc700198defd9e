"""The command ``sessiontree resume``: it finds the tree that was left, and has it continued."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from sessiontree import ConfigError, SessionTree
from sessiontree.api.runtime.ray_door import begin_backend_early
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.cli.chat import PURPOSE as CHAT
from sessiontree.cli.configured_tree import find_app, load_configuration
from sessiontree.cli.connect import list_live_trees
from sessiontree.cli.run import ATTACHED, PURPOSE, TYPED, TaskRun, make_terminal_channel
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import (
    complete_tree_id,
    find_journal,
    find_newest_tree,
    find_state_dir,
    place_option,
)
from sessiontree.contracts.facts.tree_config import TreeSummary
from sessiontree.journal.journal import Journal
from sessiontree.journal.replay import read_config
from sessiontree.runtime.replay.stored_trees import list_summaries

_RUNS = (PURPOSE, TYPED, ATTACHED)
_SURVEY = "survey to "
"""How the purpose of a survey's tree begins."""


def resume(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    tree_or_path: str | None,
    path: Path | None,
    model: str | None,
    config: Path | None,
    state_dir: Path | None,
    backend: BackendName,
    quiet: bool,
) -> int:
    """Continue a tree of ``sessiontree run``, or have a survey continued; return the exit code.

    Args:
        screen: Shows the answer.
        tree_or_path: A tree's id or the beginning of it, or a workspace; None = the newest unfinished tree.
        path: The workspace; None = this directory.
        model: Name of the model that answers from now on; None = the tree's.
        config: The configuration's file; None = the owner's own.
        state_dir: Where the journal is; None = the workspace's own place.
        backend: What runs the sessions.
        quiet: Whether nothing but the answer, questions and errors is shown.

    Raises:
        TreeNotFound: no tree ran here.
        TreeNotFound: no tree has the id.
        ConfigError: no tree here is unfinished, or no command continues the tree.
        SessionTreeError: the tree can't be continued.
    """
    named = tree_or_path
    if named is not None and path is None and _is_directory(named):
        path, named = Path(named), None
    place = find_state_dir(path, state_dir)
    tree_id = _find_newest_left(place) if named is None else complete_tree_id(place, named)
    with Journal.open(find_journal(place, tree_id), read_only=True) as journal:
        tree_id = find_newest_tree(journal, place) if tree_id is None else tree_id
        left = read_config(journal.row0(tree_id))
        last_seq = next(row.last_seq for row in journal.trees() if row.tree_id == tree_id)
    if left.purpose == CHAT:
        again = f"sessiontree chat --tree {tree_id} --model {left.model}{place_option(place)}"
        raise ConfigError(f"tree {tree_id} is a chat; go on with: {again}")
    if not left.purpose.startswith(_RUNS):
        from sessiontree.survey.command import resume as resume_survey

        return resume_survey(screen, tree_or_path=tree_id, path=path, state_dir=place, backend=backend)
    progress = RichScreen(sys.stderr, is_quiet=quiet)
    task_run = TaskRun(screen, progress, place, as_json=False, known_seq=last_seq, config=config)
    app = find_app(load_configuration(config, Path(left.workspace)), left.model, model)
    begin_backend_early(backend)

    async def open_tree() -> SessionTree:
        channel = make_terminal_channel(progress, False)
        return await SessionTree.resume(tree_id, app, channel=channel, state_dir=place, backend=backend)

    task_run.task = left.purpose.removeprefix(PURPOSE)
    return task_run.carry_out(open_tree, task_run.go_on)


def _is_directory(named: str) -> bool:
    try:
        return Path(named).expanduser().is_dir()
    except (OSError, ValueError, RuntimeError):
        return False


def _find_newest_left(place: Path) -> str | None:
    """Return the id of the newest unfinished tree that a command can continue; None where no tree ran yet.

    Raises:
        ConfigError: no tree can be continued; says what exists.
    """
    trees = list_summaries(place)
    live = asyncio.run(list_live_trees(place)) if trees else frozenset[str]()
    left = [tree for tree in trees if tree.outcome is None or not tree.outcome.is_final]
    ours = [
        tree
        for tree in left
        if (tree.purpose or "").startswith((*_RUNS, _SURVEY)) and tree.tree_id not in live
    ]
    if ours:
        return ours[-1].tree_id
    if not trees:
        return None
    raise ConfigError(f"no tree here can be resumed: {_describe_left(left, live)}")


def _describe_left(left: Sequence[TreeSummary], live: frozenset[str]) -> str:
    open_now = [tree.tree_id for tree in left if tree.tree_id in live]
    others = [tree.tree_id for tree in left if tree.tree_id not in live]
    if others:
        return (
            f"those left open ({_list_few(others)}) are chats or trees of programs; go on with "
            "sessiontree chat "
            "--tree and --model, or with SessionTree.resume in the program"
        )
    if open_now:
        return f"a program has {_list_few(open_now)} open; talk to it with sessiontree chat"
    return "each has ended; sessiontree tree --list shows them"


def _list_few(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[-3:])
    return shown if len(ids) <= 3 else f"{shown} and {len(ids) - 3:,} more"
