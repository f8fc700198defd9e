"""Exports of trees: a stored tree is written to a file, and read into a journal.

All functions block; none of them needs a runtime.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sessiontree.contracts.errors import JournalCorrupt, JournalError, JournalTooNew, JournalUnwritable
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.journal.claim import JournalClaim, list_journal_dirs, locate_journal, state_dir_of_journal
from sessiontree.journal.export import Export, ExportSummary, Manifest, load_export, open_private_file
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_config, read_fact
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.state import make_initial_tree

_NOT_IMPORTED = "nothing was imported"
_GIVE_AN_EXPORT = "give a file as an export wrote it"


def export_tree(state_dir: Path, tree_id: str, path: Path) -> ExportSummary:
    """Write the durable facts of a tree to a file that only its owner may read; the tree may be live.

    Args:
        state_dir: The state directory, or the directory of one of its journals.
        tree_id: The tree.
        path: Replaced once the export is whole.

    Raises:
        TreeNotFound, JournalError: the tree does not exist or can't be read.
        OSError: the file can't be written; the earlier file is unchanged.
    """
    with open_private_file(path) as out:
        return write_tree(state_dir, tree_id, out)


def write_tree(state_dir: Path, tree_id: str, out: BinaryIO) -> ExportSummary:
    """Write the durable facts of a tree to a stream; as :func:`export_tree` otherwise."""
    with Journal.open(locate_journal(state_dir, tree_id), read_only=True) as journal:
        text = io.TextIOWrapper(out, "ascii", newline="\n")
        try:
            return journal.export(tree_id, text)
        finally:
            text.flush()
            text.detach()  # the caller closes the stream


def import_tree(path: Path, state_dir: Path, *, damaged: bool = False) -> ExportSummary:
    """Write the tree of an export into a journal of a state directory, whole or not at all.

    Args:
        path: The export.
        state_dir: The state directory, made if missing; or the directory of one of its journals.
        damaged: Accept an export that holds only the good beginning of a damaged tree.

    Raises:
        JournalCorrupt: the file is not an export, is cut or altered, or is the export of a damaged tree.
        JournalTooNew: a later release wrote it.
        JournalError: the file is not a regular file or can't be read, or the state directory holds the tree
            already or can't be read.
        JournalUnwritable: the state directory can't be written.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a device may never end
            raise JournalError(str(path), f"it is not a regular file; {_NOT_IMPORTED}; {_GIVE_AN_EXPORT}")
        data = path.open("rb")
    except OSError as error:
        raise JournalError(
            str(path), f"it can't be read: {error.strerror}; {_NOT_IMPORTED}; {_GIVE_AN_EXPORT}"
        ) from error
    with data:
        return read_tree(data, str(path), state_dir, damaged=damaged)


def read_tree(data: BinaryIO, name: str, state_dir: Path, *, damaged: bool = False) -> ExportSummary:
    """Import an export from a stream; ``name`` is for errors; as :func:`import_tree` otherwise."""
    manifest, export = _check_export(data, name, damaged=damaged)
    with _lock_imports(state_dir_of_journal(state_dir)):
        for place in list_journal_dirs(state_dir_of_journal(state_dir)):
            with Journal.open(place, read_only=True) as journal:
                if any(row.tree_id == manifest.tree_id for row in journal.trees()):
                    raise JournalError(
                        str(place),
                        f"it holds tree {manifest.tree_id!r} already; {_NOT_IMPORTED}; erase that tree, or "
                        "import into another state directory",
                    )
        claim = JournalClaim.take(state_dir)
        try:
            with Journal.open(claim.directory) as journal:
                journal.import_tree(manifest, export.records)
        except ValueError as error:
            raise JournalCorrupt(name, f"{error}; {_NOT_IMPORTED}") from error
        finally:
            claim.release()
    return ExportSummary(manifest.tree_id, len(export.records), export.damage)


@contextmanager
def _lock_imports(state_dir: Path) -> Iterator[None]:
    """Prevent two imports of one tree into two journals of a state directory."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise JournalUnwritable(str(state_dir), f"{error.strerror}; {_NOT_IMPORTED}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_export(data: BinaryIO, name: str, *, damaged: bool) -> tuple[Manifest, Export]:
    """Return an export that can be resumed once it is imported, and its manifest."""
    lines = io.TextIOWrapper(data, "ascii", errors="replace", newline="\n")
    try:
        export = load_export(lines)
    except JournalTooNew as error:
        raise JournalTooNew(name, f"{error.reason}; {_NOT_IMPORTED}") from error
    finally:
        lines.detach()  # the caller closes the stream
    if export.stopped_at_line is not None or export.manifest is None:
        raise JournalCorrupt(
            name, f"line {export.stopped_at_line}: {export.reason}; {_NOT_IMPORTED}; {_GIVE_AN_EXPORT}"
        )
    if export.damage is not None and not damaged:
        raise JournalCorrupt(
            name,
            f"the tree was damaged when it was exported ({export.damage}); {_NOT_IMPORTED}; allow damaged "
            "exports to import its good beginning",
        )
    _check_facts(name, export.manifest, export.records)
    return export.manifest, export


def _check_facts(name: str, manifest: Manifest, records: Sequence[JournalRecord]) -> None:
    state, seq = make_initial_tree(), 0
    try:
        config = read_config(manifest.row0)
        if not isinstance(config, TreeConfig) or config.tree_id != manifest.tree_id:
            raise ValueError("it is of another tree")
        for record in records:
            seq = record.seq
            fact = read_fact(record.text)
            if not record.session:
                evolve(state, fact)
    except JournalTooNew as error:
        raise JournalTooNew(name, f"record {seq}: {error.reason}; {_NOT_IMPORTED}") from error
    except (JournalError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"record {seq} is not a fact of a tree" if seq else "its row 0 does not configure the tree"
        raise JournalCorrupt(name, f"{what}: {error!r}; {_NOT_IMPORTED}") from error
    if MAIN not in state.sessions:
        raise JournalCorrupt(name, f"it has no main session; {_NOT_IMPORTED}")
