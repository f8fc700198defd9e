"""The journals of one state directory: each running program writes its own journal, readers read all.

The first program writes in the state directory itself, the second in ``journals/2`` below it, and so on. A
new program takes the first journal that no program writes. Its trees stay there; any program can resume
them.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import JournalError, JournalLocked, JournalUnwritable, SessionTreeError
from sessiontree.journal.file_systems import find_network_fault
from sessiontree.journal.journal import Journal
from sessiontree.journal.place import JournalPlace
from sessiontree.journal.reader import make_no_tree_error
from sessiontree.journal.tables import write_error

JOURNALS: Final = "journals"
"""Name of the directory that holds all journals but the first, in a state directory."""
MAX_JOURNALS: Final = 1_000
"""Most programs that can use one state directory at a time."""
_LOCK: Final = "program.lock"
_TRIES: Final = 1_000
"""How often a claim is tried again when another program released its own at that moment."""


def state_dir_of_journal(place: Path) -> Path:
    """Return the state directory that a journal's directory belongs to; itself for a state directory."""
    return place.parent.parent if place.parent.name == JOURNALS and place.name.isdecimal() else place


def list_journal_dirs(state_dir: Path) -> tuple[Path, ...]:
    """Return the directories of all existing journals, the first program's first.

    For the directory of one journal below a state directory, return only that one.
    """
    others: list[Path] = []
    if state_dir_of_journal(state_dir) == state_dir:
        try:
            others = [each for each in (state_dir / JOURNALS).iterdir() if each.name.isdecimal()]
        except OSError:
            others = []
    found = [state_dir, *sorted(others, key=lambda each: int(each.name))]
    return tuple(each for each in found if _has_journal(each))


def _has_journal(directory: Path) -> bool:
    try:
        return JournalPlace(directory).database.is_file()
    except OSError:
        return True  # opening it raises what is wrong


def locate_journal(state_dir: Path, tree_id: str) -> Path:
    """Return the directory of the journal that holds a tree; journals that can't be read are skipped.

    Raises:
        TreeNotFound: no journal holds it.
        JournalError: no journal exists, or none can be read.
    """
    dirs = list_journal_dirs(state_dir)
    if len(dirs) <= 1:
        return dirs[0] if dirs else state_dir  # opening it raises what is wrong
    failures: list[SessionTreeError] = []
    for each in dirs:
        try:
            if holds_tree(each, tree_id):
                return each
        except JournalError as error:
            failures.append(error)
    if len(failures) == len(dirs):
        raise failures[0]
    raise make_no_tree_error(str(JournalPlace(state_dir).database), tree_id)


def holds_tree(journal_dir: Path, tree_id: str) -> bool:
    """Return whether a journal holds a tree; a journal that was not begun holds no tree. Blocks.

    Raises:
        JournalError: the journal can't be read.
    """
    if not _has_journal(journal_dir):
        return False
    with Journal.open(journal_dir, read_only=True) as journal:
        return any(row.tree_id == tree_id for row in journal.trees())


class JournalClaim:
    """A program's right to write one journal, from its start on; the system frees it if the program dies.

    The lock of the writer is a different one: on Ray the writer is a process that starts later and may be
    replaced.
    """

    def __init__(self, directory: Path, descriptor: int, made: tuple[Path, ...]) -> None:
        self.directory = directory
        """Where the journal is."""
        self._descriptor: int | None = descriptor
        self._made = made

    @classmethod
    def take(cls, state_dir: Path, tree_id: str | None = None) -> JournalClaim:
        """Claim the first journal that no program writes, or the one that holds a tree.

        Args:
            state_dir: The state directory, made (0700) if missing; or the directory of one of its journals,
                which is claimed then.
            tree_id: The tree to resume; None = any journal.

        Raises:
            JournalLocked: a program writes the journal that is wanted; the text names the process.
            JournalUnwritable: the directory or the lock file can't be made, or other machines use its file
                system.
            TreeNotFound: no journal holds the tree.
        """
        fault = find_network_fault(state_dir)
        if fault:
            raise JournalUnwritable(str(state_dir), fault)
        root = state_dir_of_journal(state_dir)
        if tree_id is not None or root != state_dir:
            wanted = state_dir if tree_id is None else locate_journal(state_dir, tree_id)
            claim = cls.take_journal(wanted)
            if claim is None:
                raise _build_locked_error(wanted)
            return claim
        for number in range(1, MAX_JOURNALS + 1):
            claim = cls.take_journal(root if number == 1 else root / JOURNALS / str(number))
            if claim is not None:
                return claim
        raise _build_locked_error(root)

    @classmethod
    def take_journal(cls, directory: Path) -> JournalClaim | None:
        """Claim the journal of one directory; return None where another program writes it.

        Raises:
            JournalUnwritable: the directory or its lock file can't be made.
        """
        place = directory / _LOCK
        for left in reversed(range(_TRIES)):
            try:
                # Noted before they are made: `release` removes these directories and no others.
                made = tuple(each for each in (directory, *directory.parents) if not each.exists())
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                # Another program may have made the directory and removed it again.
                if left and isinstance(error, FileNotFoundError | FileExistsError):
                    continue
                raise write_error(directory, error) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_file_at(place, descriptor):  # removed between opening and locking
                    os.close(descriptor)
                    continue
                if not _is_written(JournalPlace(directory)):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
                    return cls(directory, descriptor, made)
            except BlockingIOError:
                pass
            except OSError as error:
                os.close(descriptor)
                raise write_error(place, error) from error
            os.close(descriptor)
            break
        return None

    def release(self) -> None:
        """Let another program write there. If no journal was begun, remove the directories made for it.

        Releasing it again does nothing.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with suppress(OSError):
            if not JournalPlace(self.directory).database.exists():
                # Race: another program may have the file open and wait to lock it. It is removed under the
                # lock, so that program sees that the name is gone and makes a file of its own.
                (self.directory / _LOCK).unlink()
                for each in self._made:
                    each.rmdir()
        os.close(descriptor)


def _is_file_at(place: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(place), os.fstat(descriptor))  # noqa: PTH116 - alongside fstat
    except FileNotFoundError:
        return False


def _is_written(place: JournalPlace) -> bool:
    """Whether the writer of a running program holds a journal's lock; a writer without one ends itself."""
    try:
        descriptor = os.open(place.lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Taking the lock is the only sure test: after a crash the file remains, and its process id may belong
        # to another process by now.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return not place.is_orphaned
    finally:
        os.close(descriptor)
    return False


def _build_locked_error(directory: Path) -> JournalLocked:
    holder = ""
    for name in (_LOCK, JournalPlace(directory).lock.name):
        try:
            holder = holder or (directory / name).read_text("ascii", "replace").partition(" ")[0].strip()
        except OSError:
            continue
    if holder == str(os.getpid()):
        reason = "this process writes it already; pass runtime=… to use the open runtime, or close that one"
    else:
        reason = f"process {holder or 'unknown'} writes it; end it, or reach its trees by the command line"
    return JournalLocked(str(directory), reason)
