"""Command: what ``sessiontree survey`` and ``sessiontree resume`` do, up to the exit code."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sessiontree.api.paths import absolute_path, default_state_dir, workspace_root
from sessiontree.api.runtime import BackendName, Runtime
from sessiontree.api.session_tree import SessionTree
from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.survey.bounds import MAX_LIVE
from sessiontree.survey.consent import channel_of, choose
from sessiontree.survey.outcome import FAILED, Places, conclude
from sessiontree.survey.run import begin, conduct, look_around, report_place, take_up
from sessiontree.survey.screen import Screen
from sessiontree.survey.unfinished import find_unfinished
from sessiontree.workspace import WorkspaceReader

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

OpenTree: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, SessionTree]]
"""Opens the tree of a survey, new or left."""

_TREE_ID = re.compile(r"t[0-9a-f]{16}")


@dataclass(slots=True)
class _Standing:
    """Which tree is open; it can be resumed until it is finished."""

    tree_id: str | None = None
    is_finished: bool = False


def survey(
    screen: Screen,
    *,
    path: Path,
    approve: str | None,
    state_dir: Path | None,
    backend: BackendName,
    out: str,
) -> int:
    """Survey a directory and return the exit code.

    Args:
        screen: Shows what happens.
        path: The directory.
        approve: Approval mode; None = ``always`` at a terminal, else ``auto``.
        state_dir: Where the journal lies; None = the directory's own place.
        backend: What runs it.
        out: Where the report goes, relative to the directory.

    Raises:
        SessionTreeError: it can't begin; nothing was changed.
    """
    root = workspace_root(path)
    place = report_place(out)
    consent = choose(approve, sys.stdin)
    places = Places(root, _state_dir(root, state_dir), place)

    # what is wrong with the root is said before anything is made anywhere
    reader = WorkspaceReader(root, hidden=(places.state_dir,))

    async def open_tree(runtime: Runtime) -> SessionTree:
        folders = await look_around(reader, place)
        files = sum(folder.files for folder in folders)
        groups = sum(len(folder.groups) for folder in folders)
        screen.line(f"surveying {root}: {files:,} files, {len(folders):,} folders, {groups:,} groups")
        screen.line(f"approvals: {consent.mode} ({consent.why})")
        channel = screen.shared_with(channel_of(sys.stdin, sys.stdout))
        return await begin(root, folders, place, consent, channel, runtime)

    return _run(open_tree, places, backend, screen, known_seq=0)


def resume(
    screen: Screen,
    *,
    tree_or_path: str | None,
    path: Path | None,
    state_dir: Path | None,
    backend: BackendName,
) -> int:
    """Finish a survey that was left and return the exit code.

    Args:
        screen: Shows what happens.
        tree_or_path: A tree's id or, alone, the surveyed directory.
        path: The surveyed directory; None = the current one.
        state_dir: Where the journal lies; None = the directory's own place.
        backend: What runs it.

    Raises:
        SessionTreeError: there is none, or it can't be taken up.
    """
    tree_id = tree_or_path
    if tree_or_path is not None and path is None and not _TREE_ID.fullmatch(tree_or_path):
        tree_id, path = None, Path(tree_or_path)
    if state_dir is not None:
        state = absolute_path(state_dir, "--state-dir")
    else:
        state = default_state_dir(workspace_root(path or Path()))
    left = find_unfinished(state, tree_id)
    places = Places(Path(left.config.workspace), state, left.out)

    async def open_tree(runtime: Runtime) -> SessionTree:
        screen.line(f"resuming the survey of {places.root}")
        screen.line(f"approvals: {left.config.mode} (as the survey began)")
        channel = screen.shared_with(channel_of(sys.stdin, sys.stdout))
        return await take_up(left.config.tree_id, channel, runtime)

    return _run(open_tree, places, backend, screen, known_seq=left.last_seq, tree_id=left.config.tree_id)


def _state_dir(root: Path, given: Path | None) -> Path:
    if given is None:
        return default_state_dir(root)
    state = absolute_path(given, "--state-dir")
    if root.is_relative_to(state.resolve()):
        raise ConfigError(f"--state-dir {str(given)!r} holds the directory to survey; give another place")
    return state


def _run(
    open_tree: OpenTree,
    places: Places,
    backend: BackendName,
    screen: Screen,
    *,
    known_seq: int,
    tree_id: str | None = None,
) -> int:
    standing = _Standing()
    try:
        return asyncio.run(_to_the_end(open_tree, places, backend, screen, standing, known_seq, tree_id))
    except KeyboardInterrupt:
        code, what = INTERRUPTED, "interrupted"
    except (SessionTreeError, OSError) as error:
        if standing.tree_id is None:
            raise
        code, what = FAILED, f"the survey stopped: {type(error).__name__}: {error}"
    if standing.tree_id is None or standing.is_finished:
        screen.line(what)
    else:
        again = f"sessiontree resume {standing.tree_id} --state-dir {shlex.quote(str(places.state_dir))}"
        screen.line(f"{what}; nothing that was done is lost, go on with: {again}")
    return code


async def _to_the_end(
    open_tree: OpenTree,
    places: Places,
    backend: BackendName,
    screen: Screen,
    standing: _Standing,
    known_seq: int,
    tree_id: str | None,
) -> int:
    slots = MAX_LIVE if backend == "local" else None
    async with Runtime(places.state_dir, backend=backend, slots=slots, tree_id=tree_id) as runtime:
        tree = await open_tree(runtime)
        standing.tree_id = tree.tree_id
        async with tree:
            screen.line(f"tree {tree.tree_id}, journal in {places.state_dir}")
            ending = await conduct(tree, places.root, places.out, screen, known_seq=known_seq)
            code = await conclude(tree, ending, places, screen)
            standing.is_finished = True
            return code
