"""The command ``sessiontree tree``: one tree, or the list of trees, read from the journal alone.

It works with or without a live writer.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, overload

from sessiontree.api.agents.approval_modes import describe_mode
from sessiontree.api.runtime.paths import get_default_state_dir, make_absolute, resolve_workspace_root
from sessiontree.cli.changes import shorten_summary
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.errors import ConfigError, JournalCorrupt, TreeNotFound
from sessiontree.contracts.facts.tree_config import TreeConfig, TreeSummary
from sessiontree.contracts.facts.tree_facts import ApprovalDecided, ApprovalRequested
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.values.jsonable import dump_json, dump_readable
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.truncation import cut_line
from sessiontree.journal.claim import list_journal_dirs, locate_journal
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Verification
from sessiontree.journal.replay import read_config, read_fact
from sessiontree.tree.report import build_receipt
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.state import Session, TreeState, make_initial_tree

_MAIN = "main"
TREE_ID = re.compile(r"t[0-9a-f]{16}")
"""A whole id of a tree."""


@dataclass(slots=True)
class ApprovalLine:
    """One approval request and what became of it."""

    asked: ApprovalRequested
    decided: ApprovalDecided | None = None

    @property
    def decision(self) -> str:
        """How it was decided, ``open`` where it is not."""
        return "open" if self.decided is None else self.decided.decision

    @property
    def by(self) -> str:
        """Who decided."""
        return "" if self.decided is None else self.decided.by


@dataclass(frozen=True, slots=True)
class TreeReport:
    """A tree, as far as its journal can be read."""

    config: TreeConfig
    state: TreeState
    approvals: tuple[ApprovalLine, ...]
    """In the order they were asked."""
    last_seq: int
    """Number of the last good fact."""
    verdict: Verification

    def sessions(self) -> Iterator[Session]:
        """Yield all sessions in path order, parents before their children."""
        for line in build_receipt(self.state, _MAIN):
            yield self.state.sessions[line.session_id]

    @property
    def is_finished(self) -> bool:
        """Whether Main has ended."""
        return not self.state.sessions[_MAIN].is_live

    @property
    def usage(self) -> Usage:
        """What all sessions used."""
        return sum((session.usage for session in self.state.sessions.values()), Usage())

    def to_json(self) -> dict[str, Any]:
        """Return everything as one JSON object."""
        usage, verdict, config = self.usage, self.verdict, self.config
        damage = None
        if not verdict.ok:
            damage = {
                "last_good_seq": verdict.last_good_seq,
                "bad_segment": verdict.bad_segment,
                "reason": verdict.reason or "the index of sessions differs from the facts",
            }
        return {
            "tree": config.tree_id,
            "purpose": config.purpose,
            "workspace": config.workspace,
            "version": config.package_version,
            "model": config.model,
            "mode": config.mode,
            "created_at_ms": config.created_at_ms,
            "forks": [{"tree": fork.tree_id, "at": fork.seq} for fork in config.forks],
            "finished": self.is_finished,
            "last_seq": self.last_seq,
            "damage": damage,
            "sessions": [_describe_session(session) for session in self.sessions()],
            "approvals": [_describe_approval(line) for line in self.approvals],
            "totals": {
                "sessions": self.state.total,
                "live": self.state.live,
                "turns": usage.turns,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cost_usd": usage.cost_usd,
                "tool_calls": usage.tool_calls,
                "approvals": len(self.approvals),
            },
        }


def read_tree(journal: Journal, tree_id: str) -> TreeReport:
    """Return a tree as far as it is good.

    Raises:
        TreeNotFound, JournalCorrupt, JournalTooNew: nothing of it can be shown.
    """
    config = read_config(journal.row0(tree_id))
    state = make_initial_tree()
    approvals: dict[str, ApprovalLine] = {}
    for record in journal.read_session(tree_id, ""):
        fact = read_fact(record.text)
        evolve(state, fact)
        if isinstance(fact, ApprovalRequested):
            approvals[fact.question.request_id] = ApprovalLine(fact)
        elif isinstance(fact, ApprovalDecided):
            approvals[fact.request_id].decided = fact
    if _MAIN not in state.sessions:
        raise JournalCorrupt(tree_id, "its first facts are missing or damaged, so no tree can be shown")
    # facts another process commits meanwhile may be counted here and not yet shown above
    last_seq = journal.last_seq(tree_id)
    return TreeReport(config, state, tuple(approvals.values()), last_seq, journal.verify(tree_id))


def _describe_session(session: Session) -> dict[str, Any]:
    spec, usage = session.spec, session.usage
    return {
        "session": spec.session_id,
        "kind": spec.kind,
        "status": session.status,
        "label": spec.label,
        "parent": spec.parent,
        "depth": spec.depth,
        "agent": spec.agent,
        "system_tier": spec.system_tier,
        "exec_security": spec.commands,
        "delegates": list(spec.delegates),
        "turns": usage.turns,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "tool_calls": usage.tool_calls,
        "started_at_ms": session.spawned_at_ms,
        "ended_at_ms": session.ended_at_ms,
        "summary": "" if session.result is None else shorten_summary(session.result.summary),
    }


def _describe_approval(line: ApprovalLine) -> dict[str, Any]:
    question, call, decided = line.asked.question, line.asked.question.call, line.decided
    return {
        "request_id": question.request_id,
        "session": question.session,
        "tool": call.tool,
        "arguments": dict(call.arguments),
        "tier": PermissionTier(call.tier).label,
        "asked_by": [asdict(asker) for asker in question.asked_by],
        "asked_at_ms": line.asked.at_ms,
        "decision": line.decision,
        "by": line.by,
        "reason": "" if decided is None else decided.reason,
    }


def show(
    screen: RichScreen, *, path: Path | None, state_dir: Path | None, tree_id: str | None, as_json: bool
) -> int:
    """Show one tree, the newest where none is named, and return the exit code.

    Raises:
        JournalError: the journal or the tree does not exist, or nothing of it can be read.
        ConfigError: the workspace is not a directory, or no tree was made yet.
    """
    given = find_state_dir(path, state_dir)
    tree_id = complete_tree_id(given, tree_id)
    place = find_journal(given, tree_id)
    with Journal.open(place, read_only=True) as journal:
        portrait = read_tree(journal, find_newest_tree(journal, place) if tree_id is None else tree_id)
    if as_json:
        screen.raw(dump_json({**portrait.to_json(), "state_dir": str(place)}))
    else:
        _show(screen, portrait, place)
    return 0


def describe_outcome(tree: TreeSummary, *, is_live: bool = False) -> str:
    """Return the state of a tree: ``live``, ``left open``, how it ended, or ``damaged``.

    Args:
        tree: The tree.
        is_live: Whether a program has it open.
    """
    if tree.outcome is None:
        return "damaged"
    if tree.outcome.is_final:
        return str(tree.outcome)
    return "live" if is_live else "left open"


_PURPOSE_CHARS = 100


def describe_purpose(tree: TreeSummary) -> str:
    """Return in one line what a tree is for: its purpose and its first task, and what it was forked from."""
    if tree.purpose is None:
        return "(its first row is damaged)"
    fork = "" if tree.forked_from is None else f"(forked from {tree.forked_from} at fact {tree.forked_at})"
    task = " ".join(tree.task.split())
    told = tree.purpose if task[:20] in tree.purpose else f"{tree.purpose}: {task}"
    return " ".join(part for part in (cut_line(told, _PURPOSE_CHARS), fork) if part)


def find_state_dir(path: Path | None, given: Path | None) -> Path:
    """Return where the journal is: the place given, else that of the workspace.

    Raises:
        ConfigError: the workspace is not a directory.
    """
    if given is not None:
        return make_absolute(given, "--state-dir")
    return get_default_state_dir(resolve_workspace_root(path or Path()))


def place_option(state_dir: Path) -> str:
    """Return the option that names a state directory; empty if it is the one of the working directory."""
    try:
        if get_default_state_dir(resolve_workspace_root(Path())) == state_dir:
            return ""
    except ConfigError:
        pass  # the working directory is gone
    return f" --state-dir {shlex.quote(str(state_dir))}"


def find_journal(state_dir: Path, tree_id: str | None) -> Path:
    """Return the directory of the journal that holds a tree, or the newest tree where none is named.

    Raises:
        TreeNotFound: no journal holds it.
        JournalError: a journal can't be read.
    """
    if tree_id is not None:
        return locate_journal(state_dir, tree_id)
    dirs = list_journal_dirs(state_dir)
    if len(dirs) <= 1:
        return dirs[0] if dirs else state_dir
    created: dict[Path, int] = {}
    for each in dirs:
        with Journal.open(each, read_only=True) as journal:
            created[each] = max((row.created_ms for row in journal.trees()), default=-1)
    return max(dirs, key=lambda each: created[each])


def find_newest_tree(journal: Journal, place: Path) -> str:
    """Return the id of a journal's newest tree.

    Raises:
        TreeNotFound: it holds none yet.
    """
    trees = journal.trees()
    if not trees:
        raise TreeNotFound(str(place), "its journal holds no tree", "journal")
    return trees[-1].tree_id


@overload
def complete_tree_id(state_dir: Path, given: str) -> str: ...


@overload
def complete_tree_id(state_dir: Path, given: str | None) -> str | None: ...


def complete_tree_id(state_dir: Path, given: str | None) -> str | None:
    """Return the whole id of the tree whose id begins as given; a whole id, and None, are returned unchanged.

    Args:
        state_dir: The state directory, or the directory of one of its journals.
        given: What a person typed.

    Raises:
        TreeNotFound: no tree ran here.
        TreeNotFound: no tree's id begins so.
        ConfigError: the ids of several trees do.
        JournalError: a journal can't be read.
    """
    if given is None or TREE_ID.fullmatch(given):
        return given
    found: list[str] = []
    for place in list_journal_dirs(state_dir) or (state_dir,):
        with Journal.open(place, read_only=True) as journal:
            found += [row.tree_id for row in journal.trees() if given and row.tree_id.startswith(given)]
    if len(found) > 1:
        shown = ", ".join(found[-5:])
        raise ConfigError(f"the ids of {len(found):,} trees begin with {given!r}; give more of it: {shown}")
    if not found:
        raise TreeNotFound(
            str(state_dir), f"no tree here has an id that begins with {given!r}; see sessiontree tree --list"
        )
    return found[0]


def _show(screen: RichScreen, portrait: TreeReport, place: Path) -> None:
    config, usage = portrait.config, portrait.usage
    screen.line(f"tree {config.tree_id}: {config.purpose or 'no purpose given'}")
    screen.line(f"workspace: {config.workspace}")
    for fork in reversed(config.forks):
        screen.line(f"forked from: {fork.tree_id} at fact {fork.seq:,}")
    commands = dict.fromkeys(each.spec.commands for each in portrait.sessions() if each.spec.commands)
    screen.line(f"created: {time_text(config.created_at_ms)}, model {config.model}")
    screen.line(f"approvals: {describe_mode(config.mode)}, commands: {', '.join(commands)}")
    screen.table(
        ("session", "kind", "status", "turns", "tokens", "calls", "label"),
        [_build_row(session) for session in portrait.sessions()],
    )
    for each in portrait.sessions():
        if each.spec.delegates:
            screen.line(f"only children of {each.spec.session_id} may use: {', '.join(each.spec.delegates)}")
    if portrait.approvals:
        screen.table(
            ("approval for", "of", "decision", "by", "arguments"),
            [_format_approval_row(line) for line in portrait.approvals],
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


def _build_row(session: Session) -> tuple[str | int, ...]:
    spec, usage = session.spec, session.usage
    name = "  " * spec.depth + spec.session_id.rpartition("/")[2]
    label = spec.label or ""
    return (name, spec.kind, session.status, usage.turns, usage.tokens, usage.tool_calls, label)


def _format_approval_row(line: ApprovalLine) -> tuple[str, ...]:
    call = line.asked.question.call
    session = line.asked.question.session
    return (call.tool, session, line.decision, line.by, dump_readable(call.arguments))


def time_text(at_ms: int) -> str:
    """Return a time in milliseconds since 1970 for people."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
