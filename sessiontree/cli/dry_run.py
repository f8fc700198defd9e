"""The option ``--dry-run`` of ``sessiontree resume`` and ``sessiontree fork``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from sessiontree.api.stored.journaled_trees import dry_fork, dry_resume
from sessiontree.cli.configured_tree import load_configuration
from sessiontree.cli.fork import parse_tasks
from sessiontree.cli.screen import RichScreen, format_count
from sessiontree.cli.tree import complete_tree_id, find_journal, find_newest_tree, find_state_dir
from sessiontree.contracts.reports.dry_run import CallForecast, DryQuestion, DryRun, DrySession
from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.journal import Journal
from sessiontree.journal.replay import read_config

_SAID: Mapping[CallForecast, str] = {
    "begins": "is checked, then runs or asks for an approval",
    "repeats": "runs again: it may be repeated",
    "program": "its text runs again",
    "approval": "waits for an approval",
    "answer": "waits for an answer",
    "child": "waits for a child",
    "turn": "waits for the end of the turn",
    "unknown": "ends as OutcomeUnknown: it may have run",
    "skipped": "ends without running",
}
_NOT_KNOWN = "not known"


def show_resume(
    screen: RichScreen,
    *,
    tree_or_path: str | None,
    path: Path | None,
    config: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Show what a resume of a tree would do at once, and return the exit code; nothing is started.

    With ``as_json`` one object: the members of :class:`DryRun`.

    Raises:
        TreeNotFound: no journal holds the tree, or no tree ran here.
        JournalError: it can't be read.
    """
    named = tree_or_path
    if named is not None and path is None and Path(named).is_dir():
        path, named = Path(named), None
    place = find_state_dir(path, state_dir)
    tree_id = None if named is None else complete_tree_id(place, named)
    journal_dir = find_journal(place, tree_id)
    if tree_id is None:
        with Journal.open(journal_dir, read_only=True) as journal:
            tree_id = find_newest_tree(journal, place)
    _show(
        screen, dry_resume(journal_dir, tree_id, _load_prices(journal_dir, tree_id, config)), as_json=as_json
    )
    return 0


def show_fork(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    tree_id: str,
    path: Path | None,
    at: int | None,
    replace: Sequence[str] | None,
    config: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Show what a fork of a tree would do at once, as :func:`show_resume`; nothing is made.

    Raises:
        TreeNotFound: no journal holds the tree.
        ConfigError: no tree can be forked at this fact.
        JournalError: it can't be read.
    """
    given = find_state_dir(path, state_dir)
    tree_id = complete_tree_id(given, tree_id)
    place = find_journal(given, tree_id)
    prices = _load_prices(place, tree_id, config)
    _show(screen, dry_fork(place, tree_id, at, prices, parse_tasks(replace or ())), as_json=as_json)
    return 0


def _load_prices(place: Path, tree_id: str, config: Path | None) -> dict[str, ModelPrice]:
    """Return the prices that the owner's configuration names, by agent."""
    with Journal.open(place, read_only=True) as journal:
        workspace = read_config(journal.row0(tree_id)).workspace
    agents = load_configuration(config, Path(workspace)).agents
    prices = {name: spec.config.model_price for name, spec in agents.items()}
    return {name: price for name, price in prices.items() if isinstance(price, ModelPrice)}


def _show(screen: RichScreen, found: DryRun, *, as_json: bool) -> None:
    if as_json:
        screen.raw(dump_json(asdict(found)))
        return
    what = "resume" if found.forked_at is None else f"fork at fact {found.forked_at:,}"
    screen.line(
        f"{what} of tree {found.tree_id}, from {format_count(found.facts, 'fact')}; nothing was started"
    )
    header = ("session", "agent", "from the journal", "takes in", "asks its model", "at most", "budget left")
    screen.table(header, [_build_row(each) for each in found.sessions])
    if found.calls:
        rows = [
            (each.session, each.key, each.tool, _describe_call(each.becomes, each.served))
            for each in found.calls
        ]
        screen.table(("session", "call", "tool", "what becomes of it"), rows)
    counts = Counter(each.becomes for each in found.calls)
    again = counts["begins"] + counts["repeats"]
    asked = sum(each.question is not None for each in found.sessions)
    cost = _NOT_KNOWN if found.most_usd is None else f"${found.most_usd:.4f}"
    screen.line(
        f"{format_count(asked, 'question')} to models, at most {cost}; {format_count(again, 'call')} to run, "
        f"{counts['unknown']} unknown; {format_count(found.ended, 'session')} ended, nothing of which "
        "runs again"
    )


def _describe_call(becomes: CallForecast, served: int) -> str:
    if becomes == "program":
        return f"{_SAID[becomes]}, {format_count(served, 'answer')} from the journal"
    return _SAID[becomes]


def _build_row(session: DrySession) -> tuple[str, ...]:
    left = ", ".join(f"{name} {amount:g}" for name, amount in session.budget_left.items())
    served = f"{format_count(session.served_replies, 'turn')}, {format_count(session.served_calls, 'result')}"
    taken = format_count(session.messages, "message") if session.messages else ""
    if session.lost_jobs:
        taken = ", ".join(
            part for part in (taken, f"{format_count(session.lost_jobs, 'lost command')}") if part
        )
    asks, cost = _describe_question(session.question)
    return (session.session, session.agent, served, taken, asks, cost, left or "no cap")


def _describe_question(question: DryQuestion | None) -> tuple[str, str]:
    """Return which reply a session asks for, and what it costs at most."""
    if question is None:
        return "", ""
    size = question.most_input_tokens
    tokens = "request not counted yet" if size is None else f"{size:,} in"
    cost = _NOT_KNOWN if question.most_usd is None else f"${question.most_usd:.4f}"
    return f"turn {question.turn}: {tokens}, {question.most_output_tokens:,} out", cost
