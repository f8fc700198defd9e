"""The state directory: which files are in it, how it is made, and who may write."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from sessiontree.contracts.errors import JournalCorrupt, JournalLocked, TreeNotFound
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.blobs import sync_directory
from sessiontree.journal.tables import check_header, create_tables, get_log_path, write_error


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """A state directory.

    Args:
        directory: Holds one journal.
    """

    directory: Path

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.directory / "journal.db"

    @property
    def blobs(self) -> Path:
        """Directory of long texts."""
        return self.directory / "blobs"

    @property
    def lock(self) -> Path:
        """The file that a writer holds locked; it names the process ids of the writer and of its program."""
        return self.directory / "journal.lock"

    def trace_marks(self, tree_id: str) -> Path:
        """Return the file that says how far a tree is traced; it exists only if the tree was traced."""
        name = hashlib.sha256(tree_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self.directory / "traces" / name

    @property
    def is_orphaned(self) -> bool:
        """Whether the program of the last writer is gone; a writer that still runs will end itself."""
        try:
            _, program = self.lock.read_text("ascii", "replace").split()
            os.kill(int(program), 0)
        except ProcessLookupError:
            return True
        except (OSError, ValueError, OverflowError):
            # EPERM means that the process runs. A file that can't be parsed proves nothing, so its writer
            # counts as alive: two writers would be worse than a refusal.
            return False
        return False

    def prepare(self) -> int | None:
        """Make the database (0600) if it is missing, else check its header. Call it under the lock.

        The database appears whole under its name or not at all, so an empty one is always damage.

        Returns:
            A descriptor of the database. Close it after every connection to the database, because closing it
            drops the process's locks on the file. None if the database is new.

        Raises:
            JournalCorrupt: the header is damaged, or the database is gone but its log is not.
            JournalTooNew: a later release wrote it.
            OSError, sqlite3.Error: the system refused.
        """
        if self.database.exists():
            return self._open_checked()
        if get_log_path(self.database).exists():
            raise JournalCorrupt(str(self.database), "the file is gone but its log remains; restore both")
        part = self.database.with_name("journal.db.part")
        for leftover in (part, get_log_path(part), part.with_name(f"{part.name}-shm")):
            leftover.unlink(missing_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        create_tables(part)
        part.replace(self.database)
        # The first commit may be acknowledged soon; a power failure must not take the name of its file.
        sync_directory(self.directory)
        return None

    def require(self) -> None:
        """Raise TreeNotFound if the journal does not exist; opens nothing, see :meth:`prepare`."""
        if not self.database.is_file():
            raise TreeNotFound(str(self.directory), "no journal is here; check the path", "journal")
        if self.database.stat().st_size == 0:
            check_header(b"", self.database)

    def _open_checked(self) -> int:
        descriptor = os.open(self.database, os.O_RDONLY | os.O_CLOEXEC)
        try:
            check_header(os.pread(descriptor, 100, 0), self.database)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class JournalLock:
    """The lock that makes a process the only writer of a state directory; freed by the system if it dies.

    Args:
        place: The state directory; made (0700) if missing.
        program_pid: The process that this one writes for and ends with; None = this process.

    Raises:
        JournalLocked: another process holds it; the text names its process id.
        JournalUnwritable: the directory or the lock file can't be made.
    """

    def __init__(self, place: JournalPlace, program_pid: int | None = None) -> None:
        own_pid = os.getpid()
        try:
            place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise write_error(place.directory, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{own_pid} {program_pid or own_pid}\n".encode("ascii"), 0)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").partition(" ")[0].strip()
            os.close(self._descriptor)
            raise JournalLocked(
                str(place.directory),
                f"process {holder or 'unknown'} writes it; end it, or open the journal to read",
            ) from error
        except OSError as error:
            os.close(self._descriptor)
            raise write_error(place.lock, error) from error
        self._held: list[int] = []

    def hold(self, descriptor: int | None) -> None:
        """Keep a descriptor open until the lock is released."""
        self._held += [] if descriptor is None else [descriptor]

    def release(self) -> None:
        """Let another process write. The file stays: if it were deleted, two processes could write."""
        for descriptor in (*self._held, self._descriptor):
            os.close(descriptor)
