"""Journals: what ``sessiontree journal export``, ``import``, ``prune`` and ``erase`` do.

The last two ask before they erase.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from sessiontree.api.stored import journaled_trees, tree_export
from sessiontree.api.trajectories import atif_export
from sessiontree.cli.memory import MemoryPlace
from sessiontree.cli.screen import RichScreen, format_count
from sessiontree.cli.tree import (
    complete_tree_id,
    describe_outcome,
    describe_purpose,
    find_journal,
    find_newest_tree,
    find_state_dir,
)
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.tree_config import TreeSummary
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.journal import Journal

STREAM = "-"
"""Names standard output, or input, as a file."""
DAMAGED = 1
"""Exit code where the exported tree is damaged."""
KEPT = 1
"""Exit code where a person said no."""
_DAY_S = 86_400
_MAX_MB = 1e12


def export(
    screen: RichScreen,
    *,
    file: str,
    tree_id: str | None,
    file_format: str,
    workspace: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Write a tree to a file that only its owner may read, or to standard output; return the exit code.

    The format ``ndjson`` holds the facts, and ``atif`` is a trajectory with subagent trajectories.

    With ``as_json`` one object: ``state_dir``, ``file``, ``tree_id``, ``records``, ``damage`` (null = none).

    Raises:
        ConfigError: both the export and the object would go to standard output, or no tree was made yet.
        JournalError: the journal or the tree does not exist or can't be read.
        OSError: the file can't be written; the earlier file is unchanged.
    """
    if file == STREAM and as_json:
        raise ConfigError("--json describes an export in a file; name a file")
    given = find_state_dir(workspace, state_dir)
    tree_id = complete_tree_id(given, tree_id)
    place = find_journal(given, tree_id)
    if tree_id is None:
        with Journal.open(place, read_only=True) as journal:
            tree_id = find_newest_tree(journal, place)
    if file == STREAM:
        write = atif_export.write_trajectory if file_format == "atif" else tree_export.write_tree
        summary = write(place, tree_id, sys.stdout.buffer)
        if summary.damage is not None:
            sys.stderr.write(f"sessiontree: the tree is damaged: {summary.damage}\n")
        return 0 if summary.damage is None else DAMAGED
    path = Path(file).expanduser().absolute()
    save = atif_export.export_trajectory if file_format == "atif" else tree_export.export_tree
    summary = save(place, tree_id, path)
    if as_json:
        screen.raw(dump_json({"state_dir": str(place), "file": str(path), **asdict(summary)}))
    else:
        screen.line(f"tree {summary.tree_id}: {format_count(summary.records, 'fact')} exported to {path}")
        if summary.damage is not None:
            screen.line(f"the tree is damaged, and the export ends before: {summary.damage}")
    return 0 if summary.damage is None else DAMAGED


def import_(
    screen: RichScreen,
    *,
    file: str,
    damaged: bool,
    workspace: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Write an exported tree into the journal, whole or not at all, and return the exit code.

    With ``as_json`` one object: ``state_dir``, ``tree_id``, ``records`` and ``damage`` (null = none).

    Raises:
        JournalCorrupt, JournalTooNew: the file can't be imported.
        JournalError: the file can't be read, or the state directory holds the tree already or can't be used.
    """
    place = find_state_dir(workspace, state_dir)
    if file == STREAM:
        summary = tree_export.read_tree(sys.stdin.buffer, "standard input", place, damaged=damaged)
    else:
        summary = tree_export.import_tree(Path(file).expanduser().absolute(), place, damaged=damaged)
    if as_json:
        screen.raw(dump_json({"state_dir": str(place), **asdict(summary)}))
    else:
        screen.line(f"tree {summary.tree_id}: {format_count(summary.records, 'fact')} imported into {place}")
    return 0


def prune(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    older_than: float | None,
    keep: int | None,
    max_size: float | None,
    ended_only: bool,
    yes: bool,
    workspace: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Erase old trees from the journals that no program writes, and return the exit code.

    With ``as_json`` one object: ``state_dir``, ``erased`` (ids) and ``in_use`` (journals left alone).

    Raises:
        ConfigError: no condition is given, or nobody can be asked and ``yes`` is not given.
        JournalError: a journal can't be read or written.
    """
    if older_than is None and keep is None and max_size is None:
        raise ConfigError("say what to prune with --older-than DAYS, --keep NUMBER or --max-size MB")
    _check_asking(yes=yes, as_json=as_json)
    place = find_state_dir(workspace, state_dir)
    age_s = None if older_than is None else older_than * _DAY_S
    most = None if max_size is None else _to_bytes(max_size)
    plan = journaled_trees.plan_prune(
        place, older_than_s=age_s, keep=keep, max_bytes=most, unfinished=not ended_only
    )
    if plan.trees and not yes:
        screen.table(
            ("tree", "written", "facts", "outcome", "purpose"),
            [_build_row(tree) for tree in plan.trees],
        )
        if not _confirm(screen, f"erase {format_count(len(plan.trees), 'tree')}?"):
            screen.line("nothing erased")
            return KEPT
    erased = journaled_trees.prune(plan)
    if as_json:
        in_use = [str(each) for each in plan.in_use]
        screen.raw(dump_json({"state_dir": str(place), "erased": erased, "in_use": in_use}))
        return 0
    screen.line(f"{format_count(len(erased), 'tree')} erased")
    for each in plan.in_use:
        screen.line(f"left alone, because a program writes it: {each}")
    return 0


def _to_bytes(megabytes: float) -> int:
    if not 0 <= megabytes < _MAX_MB:
        raise ConfigError(f"--max-size is {megabytes:g}; give a number of MB from 0 on")
    return int(megabytes * 1_000_000)


def erase(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    tree_id: str,
    keep_memory: bool,
    yes: bool,
    workspace: Path | None,
    state_dir: Path | None,
    uri: str | None,
    as_json: bool,
) -> int:
    """Erase a tree and what its sessions stored in memory, and return the exit code.

    With ``as_json`` one object: ``state_dir``, ``erased`` (the id) and ``forgotten`` (records of memory).

    Raises:
        ConfigError: nobody can be asked and ``yes`` is not given.
        TreeNotFound: no journal holds the tree.
        JournalLocked, MemoryFailed: a program writes its journal, or memory.
        JournalError, MemoryFailed: the journal or memory can't be written.
    """
    _check_asking(yes=yes, as_json=as_json)
    place = find_state_dir(workspace, state_dir)
    memory = None if keep_memory else MemoryPlace.of(workspace, state_dir, uri).uri
    if not yes:
        facts = journaled_trees.count_facts(place, tree_id)
        records = 0 if memory is None else asyncio.run(journaled_trees.count_in_memory(memory, tree_id))
        kept = " (memory stays)" if keep_memory else f" and {format_count(records, 'record')} of memory"
        if not _confirm(screen, f"erase tree {tree_id} with {format_count(facts, 'fact')}{kept}?"):
            screen.line("nothing erased")
            return KEPT
    forgotten = asyncio.run(journaled_trees.erase_tree(place, tree_id, memory))
    if as_json:
        screen.raw(dump_json({"state_dir": str(place), "erased": tree_id, "forgotten": forgotten}))
    else:
        screen.line(f"tree {tree_id} erased, with {format_count(forgotten, 'record')} of memory")
    return 0


def _check_asking(*, yes: bool, as_json: bool) -> None:
    at_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if not yes and (as_json or not at_terminal):
        raise ConfigError(
            "erasing needs a confirmation, and no terminal can ask for it; nothing was erased. "
            "Give --yes to erase without asking"
        )


def _confirm(screen: RichScreen, question: str) -> bool:
    screen.line(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _build_row(tree: TreeSummary) -> tuple[str | int, ...]:
    return (
        tree.tree_id,
        _format_date(tree.written_at_ms),
        tree.last_seq,
        describe_outcome(tree),
        describe_purpose(tree),
    )


def _format_date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
