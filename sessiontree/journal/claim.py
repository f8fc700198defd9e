"""The journals of one state directory: each program at work writes one of its own, readers know all.

The first program writes in the state directory itself, the next in ``journals/2`` beneath it, and so on; a
program that begins takes the first that nobody writes. What it wrote stays there, for whoever takes it up.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import JournalError, JournalLocked, SessionTreeError
from sessiontree.journal.journal import Journal
from sessiontree.journal.place import JournalPlace
from sessiontree.journal.reader import no_tree
from sessiontree.journal.sqlite_errors import write_error

JOURNALS: Final = "journals"
"""Directory of all journals but the first, in a state directory."""
MAX_JOURNALS: Final = 1_000
"""Most programs at work over one state directory."""
_LOCK: Final = "program.lock"
_TRIES: Final = 1_000
"""How often a claim begins again when another program took its own back at that moment."""


def state_dir_of_journal(place: Path) -> Path:
    """Return the state directory that a journal's directory belongs to; a state directory is its own."""
    return place.parent.parent if place.parent.name == JOURNALS and place.name.isdecimal() else place


def journal_dirs(state_dir: Path) -> tuple[Path, ...]:
    """Return the directories of all journals there are, the first program's first.

    A directory of one journal stands for that journal alone.
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
        return True  # whoever opens it says what is wrong


def journal_holding(state_dir: Path, tree_id: str) -> Path:
    """Return the directory of the journal that holds a tree; a journal that can't be read is passed over.

    Raises:
        TreeNotFound: none of them does.
        JournalError: there is no journal, or none that can be read.
    """
    dirs = journal_dirs(state_dir)
    if len(dirs) <= 1:
        return dirs[0] if dirs else state_dir  # whoever opens it says what is wrong
    failures: list[SessionTreeError] = []
    for each in dirs:
        try:
            with Journal.open(each, read_only=True) as journal:
                if any(row.tree_id == tree_id for row in journal.trees()):
                    return each
        except JournalError as error:
            failures.append(error)
    if len(failures) == len(dirs):
        raise failures[0]
    raise no_tree(str(JournalPlace(state_dir).database), tree_id)


class JournalClaim:
    """A program's right to write one journal, from its first moment on; freed by the system if it dies.

    The writer's own lock is another: on Ray the writer is a process that comes later and may be replaced.
    """

    def __init__(self, directory: Path, descriptor: int, made: tuple[Path, ...]) -> None:
        self.directory = directory
        """Where the journal lies."""
        self._descriptor: int | None = descriptor
        self._made = made

    @classmethod
    def take(cls, state_dir: Path, tree_id: str | None = None) -> JournalClaim:
        """Claim the first journal that nobody writes, or the one that holds a tree.

        Args:
            state_dir: The state directory, made (0700) if missing; or the directory of one of its journals,
                which is claimed then.
            tree_id: The tree that is to be taken up; None = any journal will do.

        Raises:
            JournalLocked: the one wanted is written by somebody; names the process.
            JournalUnwritable: directory or lock file can't be made.
            TreeNotFound: no journal holds the tree.
        """
        root = state_dir_of_journal(state_dir)
        if tree_id is not None or root != state_dir:
            wanted = state_dir if tree_id is None else journal_holding(state_dir, tree_id)
            claim = cls._of(wanted)
            if claim is None:
                raise _locked(wanted)
            return claim
        for number in range(1, MAX_JOURNALS + 1):
            claim = cls._of(root if number == 1 else root / JOURNALS / str(number))
            if claim is not None:
                return claim
        raise _locked(root)

    @classmethod
    def _of(cls, directory: Path) -> JournalClaim | None:
        """Return the claim to one journal, None where another has it."""
        place = directory / _LOCK
        for left in reversed(range(_TRIES)):
            try:
                made = tuple(each for each in (directory, *directory.parents) if not each.exists())
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                # Whoever else made the directory may have taken it back meanwhile.
                if left and isinstance(error, FileNotFoundError | FileExistsError):
                    continue
                raise write_error(directory, error) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_file_at(place, descriptor):  # taken back between opening and locking
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
        """Let another program write there; where no journal was begun, what was made for it goes too.

        Releasing again does nothing.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with suppress(OSError):
            if not JournalPlace(self.directory).database.exists():
                (self.directory / _LOCK).unlink()
                for each in self._made:
                    each.rmdir()
        os.close(descriptor)


def _is_file_at(place: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(place), os.fstat(descriptor))  # noqa: PTH116 - beside fstat
    except FileNotFoundError:
        return False


def _is_written(place: JournalPlace) -> bool:
    """Whether a living program's writer holds a journal's lock; one whose program is gone ends by itself."""
    try:
        descriptor = os.open(place.lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return not place.is_orphaned
    finally:
        os.close(descriptor)
    return False


def _locked(directory: Path) -> JournalLocked:
    holder = ""
    for name in (_LOCK, JournalPlace(directory).lock.name):
        try:
            holder = holder or (directory / name).read_text("ascii", "replace").partition(" ")[0].strip()
        except OSError:
            continue
    if holder == str(os.getpid()):
        fix = "this very process; pass runtime=… to use the open one, or close what was opened before"
    else:
        fix = f"process {holder or 'unknown'}; end that one, or reach its trees with the command line"
    return JournalLocked(str(directory), f"it is written by {fix}")
