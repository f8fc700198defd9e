"""Tree: what ``sessiontree tree`` shows, read from the journal alone, beside a writer or without one."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sessiontree.api.paths import absolute_path, default_state_dir, workspace_root
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree_report import ApprovalLine, Portrait, portrait_of
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.jsonable import dump_json, dump_readable
from sessiontree.contracts.tree_summary import TreeSummary
from sessiontree.journal.claim import journal_dirs, journal_holding
from sessiontree.journal.journal import Journal
from sessiontree.runtime.tree_summaries import summaries_of
from sessiontree.tree.state import Session


def show(
    screen: RichScreen, *, path: Path | None, state_dir: Path | None, tree_id: str | None, as_json: bool
) -> int:
    """Show one tree, the newest where none is named, and return the exit code.

    Raises:
        JournalError: there is no journal, no such tree, or nothing of it can be read.
        ConfigError: the workspace is none, or there is no tree yet.
    """
    place = journal_of(state_dir_of(path, state_dir), tree_id)
    with Journal.open(place, read_only=True) as journal:
        portrait = portrait_of(journal, newest_tree(journal, place) if tree_id is None else tree_id)
    if as_json:
        screen.raw(dump_json({**portrait.to_json(), "state_dir": str(place)}))
    else:
        _show(screen, portrait, place)
    return 0


def show_list(screen: RichScreen, *, path: Path | None, state_dir: Path | None, as_json: bool) -> int:
    """Show all trees of all journals, oldest first, and return the exit code.

    Raises:
        JournalError: there is no journal, or it can't be read.
        ConfigError: the workspace is none.
    """
    place = state_dir_of(path, state_dir)
    if not journal_dirs(place):
        with Journal.open(place, read_only=True):
            pass  # it says what is wrong
    trees = summaries_of(place)
    if as_json:
        screen.raw(dump_json({"state_dir": str(place), "trees": [_listed(tree) for tree in trees]}))
        return 0
    rows = [
        (
            tree.tree_id,
            _time(tree.created_at_ms),
            _time(tree.written_at_ms),
            tree.last_seq,
            tree.outcome or "damaged",
            "(its first row is damaged)" if tree.purpose is None else tree.purpose,
        )
        for tree in trees
    ]
    screen.table(("tree", "created", "written", "facts", "outcome", "purpose"), rows)
    screen.line(f"{len(rows)} trees, journal: {place}")
    return 0


def state_dir_of(path: Path | None, given: Path | None) -> Path:
    """Return where the journal lies: the place given, else that of the workspace.

    Raises:
        ConfigError: the workspace is none.
    """
    if given is not None:
        return absolute_path(given, "--state-dir")
    return default_state_dir(workspace_root(path or Path()))


def journal_of(state_dir: Path, tree_id: str | None) -> Path:
    """Return the directory of the journal that holds a tree, or the newest tree where none is named.

    Raises:
        TreeNotFound: no journal holds it.
        JournalError: a journal can't be read.
    """
    if tree_id is not None:
        return journal_holding(state_dir, tree_id)
    dirs = journal_dirs(state_dir)
    if len(dirs) <= 1:
        return dirs[0] if dirs else state_dir
    created: dict[Path, int] = {}
    for each in dirs:
        with Journal.open(each, read_only=True) as journal:
            created[each] = max((row.created_ms for row in journal.trees()), default=-1)
    return max(dirs, key=lambda each: created[each])


def newest_tree(journal: Journal, place: Path) -> str:
    """Return the id of a journal's newest tree.

    Raises:
        ConfigError: it holds none yet.
    """
    trees = journal.trees()
    if not trees:
        raise ConfigError(f"the journal in {str(place)!r} holds no tree yet")
    return trees[-1].tree_id


def _show(screen: RichScreen, portrait: Portrait, place: Path) -> None:
    config, usage = portrait.config, portrait.usage
    screen.line(f"tree {config.tree_id}: {config.purpose or 'no purpose given'}")
    screen.line(f"workspace: {config.workspace}")
    commands = dict.fromkeys(each.spec.commands for each in portrait.sessions() if each.spec.commands)
    screen.line(f"created: {_time(config.created_at_ms)}, model {config.model}")
    screen.line(f"approvals: {config.mode}, commands: {', '.join(commands)}")
    screen.table(
        ("session", "kind", "status", "turns", "tokens", "calls", "label"),
        [_row(session) for session in portrait.sessions()],
    )
    if portrait.approvals:
        screen.table(
            ("approval for", "of", "decision", "by", "arguments"),
            [_approval_row(line) for line in portrait.approvals],
        )
    live = "finished" if portrait.is_finished else f"{portrait.state.live:,} not ended"
    screen.line(
        f"{portrait.state.total:,} sessions ({live}), {usage.turns:,} turns, {usage.tokens:,} tokens, "
        f"{usage.tool_calls:,} tool calls, {len(portrait.approvals):,} approvals"
    )
    if not portrait.verdict.ok:
        reason = portrait.verdict.reason or "the index of sessions differs from the facts"
        screen.line(f"damaged: readable up to fact {portrait.last_seq:,}: {reason}")
    screen.line(f"journal: {place}, {portrait.last_seq:,} facts")


def _row(session: Session) -> tuple[str | int, ...]:
    spec, usage = session.spec, session.usage
    name = "  " * spec.depth + spec.session_id.rpartition("/")[2]
    label = spec.label or ""
    return (name, spec.kind, session.status, usage.turns, usage.tokens, usage.tool_calls, label)


def _approval_row(line: ApprovalLine) -> tuple[str, ...]:
    asked = line.asked
    return (asked.tool, asked.session, line.decision, line.by, dump_readable(asked.arguments))


def _listed(tree: TreeSummary) -> dict[str, Any]:
    told = asdict(tree)
    return {"tree": told.pop("tree_id"), **told}


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
