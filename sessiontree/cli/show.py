"""The command ``sessiontree show``: what was said and done in a tree, read from its journal."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from pathlib import Path

from sessiontree.api.stored.folded_programs import fold_transcript
from sessiontree.api.stored.journaled_trees import StoredFacts
from sessiontree.api.stored.transcript import TranscriptStep, build_transcript
from sessiontree.cli.changes import FAILURE
from sessiontree.cli.screen import RichScreen, format_count
from sessiontree.cli.tree import complete_tree_id, find_journal, find_newest_tree, find_state_dir
from sessiontree.contracts.errors import SessionNotFound
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.journal.journal import Journal
from sessiontree.runtime.replay.stored_trees import load_tree

_NAMED = 10
"""How many sessions of a tree an error names."""


def show(
    screen: RichScreen,
    *,
    tree_or_session: str | None,
    session: str | None,
    workspace: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Show the transcript of a tree, or of one of its sessions, and return the exit code.

    With ``as_json`` one object: ``tree``, ``purpose``, ``workspace``, ``state_dir``, ``session`` (null = all)
    and ``steps``, the members of :class:`TranscriptStep`; for people, each program is one step.

    Args:
        screen: Shows it.
        tree_or_session: A tree's id or the beginning of it, or a session's path in the newest tree; None =
            the newest tree.
        session: A session's path, such as ``main/b1``; None = all sessions.
        workspace: The workspace; None = this directory.
        state_dir: Where the journal is; None = the workspace's own place.
        as_json: Whether a program reads it.

    Raises:
        TreeNotFound: no tree ran here.
        TreeNotFound, JournalError: the tree does not exist, or can't be read.
        SessionNotFound: the tree has no such session.
    """
    named = tree_or_session
    if session is None and named is not None and (named == MAIN or named.startswith(f"{MAIN}/")):
        named, session = None, named
    given = find_state_dir(workspace, state_dir)
    named = complete_tree_id(given, named)
    place = find_journal(given, named)
    with Journal.open(place, read_only=True) as journal:
        tree_id = find_newest_tree(journal, place) if named is None else named
        config, state, _ = load_tree(journal, tree_id)
    if session is not None and session not in state.sessions:
        first = [name for name, _ in islice(state.sessions.items(), _NAMED)]
        known, rest = ", ".join(first), state.total - len(first)
        more = f" and {rest:,} more" if rest else ""
        raise SessionNotFound(session, f"tree {tree_id} has no such session; it has {known}{more}")
    with StoredFacts(place) as facts:
        records = facts.read(tree_id)
        steps = list(build_transcript(records, session)) if as_json else fold_transcript(records, session)
    if as_json:
        told = {
            "tree": tree_id,
            "purpose": config.purpose,
            "workspace": config.workspace,
            "state_dir": str(place),
            "session": session,
            "steps": [asdict(step) for step in steps],
        }
        screen.raw(dump_json(told))
        return 0
    of = "" if session is None else f", session {session}"
    screen.line(f"tree {tree_id}{of}: {config.purpose or 'no purpose given'}")
    for step in steps:
        _show_step(screen, step)
    main = state.sessions[MAIN]
    screen.line(f"({format_count(len(steps), 'step')}; main is {main.status})")
    return 0


def _show_step(screen: RichScreen, step: TranscriptStep) -> None:
    for line in step.lines():
        screen.line(line, FAILURE if step.is_failure else "")
