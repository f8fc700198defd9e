"""The bodies of ``sessiontree cron``: timed jobs read from the journal, and changed in a live tree."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sessiontree.channels.safe_text import make_visible
from sessiontree.cli.changes import shorten_summary
from sessiontree.cli.connect import open_tree
from sessiontree.cli.screen import RichScreen, format_count
from sessiontree.cli.tree import complete_tree_id, find_journal, find_state_dir
from sessiontree.contracts.errors import ConfigError, TreeNotFound
from sessiontree.contracts.recorded.cron import CronTable, JobAction, JobRow, JobRun
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.control.client import ControlClient
from sessiontree.runtime.replay.stored_jobs import ScheduledTree, list_scheduled_trees
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.tree.job_report import build_job_row, build_job_table, list_job_runs
from sessiontree.tree.rules.timetable import show_time

_DONE: dict[JobAction, str] = {
    "run": "runs now",
    "pause": "is paused",
    "resume": "is active again",
    "remove": "was removed",
}


def show_list(
    screen: RichScreen, *, tree: str | None, workspace: Path | None, state_dir: Path | None, as_json: bool
) -> int:
    """List the timed jobs of all trees, or of one, and return the exit code.

    With ``as_json`` one object: ``state_dir``, ``now_ms``, and ``jobs``: see :func:`show`.

    Args:
        screen: Shows them.
        tree: A tree's id or the beginning of it; None = all trees.
        workspace: The workspace; None = this directory.
        state_dir: Where the journal is; None = the workspace's own place.
        as_json: Whether a program reads it.

    Raises:
        TreeNotFound, JournalError: the tree that is named does not exist, or can't be read.
    """
    place = find_state_dir(workspace, state_dir)
    found = _list_trees(place, tree)
    now_ms = read_machine_ms()
    tables = [(each.config.tree_id, build_job_table(each.state, now_ms)) for each in found]
    if as_json:
        jobs = [_to_json(tree_id, row) for tree_id, table in tables for row in table.jobs]
        screen.raw(dump_json({"state_dir": str(place), "now_ms": now_ms, "jobs": jobs}))
    else:
        _show_tables(screen, tables)
    return 0


def show(
    screen: RichScreen,
    *,
    job: str,
    tree: str | None,
    workspace: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Show a timed job and return the exit code; arguments and errors as for :func:`show_list`.

    With ``as_json`` one object: ``tree``, ``schedule`` in words, ``next_ms`` (null = none comes), ``runs``,
    ``skipped``, ``is_running``, ``last`` (as in :func:`show_runs`, or null), and ``job``, the members of
    :class:`~sessiontree.contracts.recorded.cron.CronJob`.

    Raises:
        ConfigError: no tree, or more than one, has such a job.
    """
    found = _find_tree(find_state_dir(workspace, state_dir), job, tree)
    row = build_job_row(found.state, job)
    if as_json:
        screen.raw(dump_json(_to_json(found.config.tree_id, row)))
        return 0
    wanted, zone = row.job, row.job.zone
    named = f" ({wanted.name})" if wanted.name else ""
    screen.line(f"job {wanted.job_id}{named} of tree {found.config.tree_id}: {_format_status(row)}")
    screen.line(f"times: {wanted.schedule}; next: {_time(row.next_ms, zone) or 'none'}")
    if wanted.until_ms is not None:
        screen.line(f"until: {_time(wanted.until_ms, zone)}")
    screen.line(f"missed times: {'the newest runs once' if wanted.catch_up == 'once' else 'skipped'}")
    does = "a message to Main" if wanted.target == "main" else f"a {wanted.kind} of {wanted.agent or 'Main'}"
    screen.line(
        f"starts: {does}; ran {format_count(row.runs, 'time')}, skipped {format_count(row.skipped, 'time')}"
    )
    if wanted.taint:
        screen.line(f"its writer had read untrusted text: {wanted.taint}")
    screen.line(f"text: {wanted.text}")
    return 0


def show_runs(
    screen: RichScreen,
    *,
    job: str,
    tree: str | None,
    limit: int,
    workspace: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Show the newest runs and skips of a timed job, and return the exit code; errors as for :func:`show`.

    With ``as_json`` one object: ``tree``, ``job_id``, and ``runs``, newest first, each with the members of
    :class:`~sessiontree.contracts.recorded.cron.JobRun`. ``limit`` is the most entries shown.
    """
    found = _find_tree(find_state_dir(workspace, state_dir), job, tree)
    tree_id, zone = found.config.tree_id, found.state.jobs[job].job.zone
    runs = list_job_runs(found.state, job, limit)
    if as_json:
        screen.raw(dump_json({"tree": tree_id, "job_id": job, "runs": [asdict(each) for each in runs]}))
        return 0
    rows = [(_time(each.slot_ms, zone), each.how, each.session, _describe_outcome(each)) for each in runs]
    screen.table(("time", "how", "session", "outcome"), rows)
    screen.line(f"job {job} of tree {tree_id}: {len(runs)} {'entry' if len(runs) == 1 else 'entries'}")
    return 0


def change(
    screen: RichScreen,
    *,
    action: JobAction,
    job: str,
    tree: str | None,
    workspace: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Change a timed job of a live tree, and return the exit code; with ``as_json`` as :func:`show`.

    Raises:
        TreeNotFound: nobody has the tree open; says how to open it.
        SessionClosed: it has ended.
        ConfigError: no tree, or more than one, has such a job.
        ExecutionError: it can't be done to the job now.
    """
    found = _find_tree(find_state_dir(workspace, state_dir), job, tree)
    tree_id = found.config.tree_id
    row = asyncio.run(_change(found.place, tree_id, job, action))
    if as_json:
        screen.raw(dump_json(_to_json(tree_id, row)))
    else:
        screen.line(f"job {job} of tree {tree_id} {_DONE[action]}")
    return 0


async def _change(place: Path, tree_id: str, job: str, action: JobAction) -> JobRow:
    client = await ControlClient.find(place)
    if client is None:
        await open_tree(None, place, tree_id)  # raises: says why nobody answers, and how to open the tree
        raise TreeNotFound(tree_id, "no runtime has it open")
    async with client:
        tree_id = await open_tree(client, place, tree_id)
        return await client.supervisor.change_job(tree_id, job, action, secrets.token_hex(16))


def _list_trees(place: Path, named: str | None) -> list[ScheduledTree]:
    """Return the trees with timed jobs, or the one that is named; say on stderr what can't be read.

    Raises:
        TreeNotFound, JournalError: the tree that is named does not exist, or can't be read.
    """
    tree_id = complete_tree_id(place, named)
    if tree_id is not None:
        place = find_journal(place, tree_id)
    found: list[ScheduledTree] = []
    for each in list_scheduled_trees(place, tree_id):
        if isinstance(each, ScheduledTree):
            found.append(each)
        elif tree_id is not None:
            raise each[1]
        else:
            sys.stderr.write(f"sessiontree: left out: {make_visible(str(each[1]))}\n")
    return found


def _find_tree(place: Path, job: str, named: str | None) -> ScheduledTree:
    """Return the tree that has a job.

    Raises:
        ConfigError: none, or more than one, has it.
        TreeNotFound, JournalError: as for :func:`_trees`.
    """
    trees = _list_trees(place, named)
    having = [each for each in trees if job in each.state.jobs]
    if len(having) == 1:
        return having[0]
    if having:
        ids = ", ".join(each.config.tree_id for each in having[-5:])
        raise ConfigError(f"{len(having)} trees have a job {job}; name one with --tree: {ids}")
    known = sorted({name for each in trees for name, _ in each.state.jobs.items()})
    raise ConfigError(f"no timed job is called {job[:64]!r}; there are: {', '.join(known) or 'none'}")


def _show_tables(screen: RichScreen, tables: Sequence[tuple[str, CronTable]]) -> None:
    rows = [
        (
            tree_id,
            row.job.job_id,
            row.job.name or shorten_summary(row.job.text)[:40],
            row.job.schedule,
            _format_status(row),
            _time(row.next_ms, row.job.zone),
            row.runs,
            row.skipped,
        )
        for tree_id, table in tables
        for row in table.jobs
    ]
    if rows:
        screen.table(("tree", "job", "name", "times", "status", "next", "runs", "skipped"), rows)
    screen.line(format_count(len(rows), "timed job"))


def _format_status(row: JobRow) -> str:
    return f"{row.job.status}, running" if row.is_running else row.job.status


def _describe_outcome(run: JobRun) -> str:
    if run.run_id:
        return f"{run.state}: {shorten_summary(run.summary)}" if run.summary else run.state
    slots = f"{run.count:,}" if run.is_exact else f"more than {run.count:,}"
    return f"{run.reason} ({slots} of its times)" if run.count > 1 else run.reason


def _time(at_ms: int | None, zone: str) -> str:
    return "" if at_ms is None else show_time(at_ms, zone)


def _to_json(tree_id: str, row: JobRow) -> dict[str, object]:
    budget = None if row.job.budget is None else row.job.budget.model_dump(exclude_none=True)
    return {
        "tree": tree_id,
        "schedule": row.job.schedule,
        **asdict(row),
        "job": {**asdict(row.job), "budget": budget},
    }
