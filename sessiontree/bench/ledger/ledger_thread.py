"""The thread of a ledger: it commits what is ready at the same moment in one transaction."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from sessiontree import JournalError, SessionTreeError
from sessiontree.bench.ledger.ledger_tables import open_ledger
from sessiontree.contracts.errors import describe_error

T = TypeVar("T")
_Piece = tuple[Callable[[sqlite3.Connection], Any], "asyncio.Future[Any] | None"]
"""A piece of work, and who waits for its value; None = nobody does."""
_ITS_OWN: Final = (sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.InterfaceError)
"""Errors of SQLite about a value, not about the file."""
NOTE_S: Final = 0.05
"""How long a piece of work for which nobody waits may be held, in seconds."""
_Done = tuple["asyncio.Future[Any] | None", Any, "BaseException | None"]


class LedgerThread:
    """Runs pieces of work on a ledger's file, in the order they were given.

    Args:
        path: The file; it is created if it is missing.
        beat: Run in a transaction from time to time, whatever the event loop does.
        shared: Whether other machines may open the file.
        beat_s: How often that is.
    """

    def __init__(
        self, path: Path, beat: Callable[[sqlite3.Connection], Any], *, shared: bool, beat_s: float
    ) -> None:
        self._path = path
        self._beat = beat
        self._shared = shared
        self._beat_s = beat_s
        self._work: queue.SimpleQueue[_Piece | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: JournalError | None = None
        """Why it takes no more work."""

    async def open(self) -> None:
        """Open the file.

        Raises:
            JournalError: it can't be opened, or is not a ledger.
        """
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[Any] = self._loop.create_future()
        self._thread = threading.Thread(target=self._serve, args=(opened,), name="sessiontree-ledger")
        self._thread.start()
        await opened

    async def close(self, last: Callable[[sqlite3.Connection], Any]) -> None:
        """Commit what is ready and then a last piece of work, and close the file."""
        # Through the queue, so that it comes after everything that was given before.
        self._work.put((last, None))
        self._work.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def put(self, run: Callable[[sqlite3.Connection], Any]) -> None:
        """Run a piece of work with the next commit; nobody waits for it."""
        self._work.put((run, None))

    def call_on_loop(self, call: Callable[[str], None], given: str) -> None:
        """Call something on the event loop, if there still is one."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, given)

    async def do(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run a piece of work in the ledger's next transaction, and return its value once that is durable.

        Raises:
            JournalError: the ledger is closed, or can't be written.
        """
        if self._loop is None:
            raise JournalError(str(self._path), "it is not open")
        done: asyncio.Future[T] = self._loop.create_future()
        self._work.put((run, done))
        # Race: the thread may have looked at the queue for the last time before this piece was in it.
        if self._ended is not None and not done.done():
            done.set_exception(self._ended)
        return await done

    def _serve(self, opened: asyncio.Future[Any]) -> None:
        """Open the file, then commit work in batches until the end."""
        try:
            db = open_ledger(self._path, shared=self._shared)
        except (SessionTreeError, OSError) as error:
            self._settle([(opened, None, error)])
            return
        self._settle([(opened, None, None)])
        beat_at = time.monotonic() + self._beat_s
        try:
            is_over = False
            while not is_over:
                batch = self._take_ready(beat_at - time.monotonic())
                is_over = None in batch
                pieces = [each for each in batch if each is not None]
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + self._beat_s
                    pieces.append((self._beat, None))
                self._settle(self._commit(db, pieces))
        except BaseException as error:
            self._end_service(f"its thread has ended: {describe_error(error)}; run the command again")
            raise
        finally:
            db.close()
            self._end_service("it is closed")

    def _end_service(self, reason: str) -> None:
        """Fail what waits, and whatever comes later."""
        self._ended = self._ended or JournalError(str(self._path), reason)
        left: list[_Done] = []
        while not self._work.empty():
            piece = self._work.get()
            if piece is not None:
                left.append((piece[1], None, self._ended))
        self._settle(left)

    def _take_ready(self, wait_s: float) -> list[_Piece | None]:
        """Return the work that is ready, after waiting for the first piece of it."""
        try:
            batch = [self._work.get(timeout=max(0.0, wait_s))]
        except queue.Empty:
            return []
        # All that is ready goes into one transaction: a commit waits for the disk, however little is in it.
        # What nobody waits for is held for a moment, because most likely something follows that pays for it.
        until = time.monotonic() + NOTE_S
        while True:
            while not self._work.empty():
                batch.append(self._work.get())
            if any(piece is None or piece[1] is not None for piece in batch):
                return batch
            try:
                batch.append(self._work.get(timeout=max(0.0, until - time.monotonic())))
            except queue.Empty:
                return batch

    def _commit(self, db: sqlite3.Connection, batch: Sequence[_Piece]) -> list[_Done]:
        """Run a batch in one transaction; return the value or the error of each piece of work."""
        if not batch:
            return []
        try:
            db.execute("BEGIN IMMEDIATE")
            done = [_run_piece(db, *batch[0])] if len(batch) == 1 else _run_pieces(db, batch)
            if db.in_transaction:  # else its only piece was refused
                db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            failed = JournalError(str(self._path), f"{error}; look at the disk, then run the command again")
            return [(future, None, failed) for _, future in batch]
        return done

    def _settle(self, done: Sequence[_Done]) -> None:
        """Hand values and errors to those who wait, on the loop."""

        def settle() -> None:
            for future, value, error in done:
                if future is None or future.done():
                    continue
                if error is None:
                    future.set_result(value)
                else:
                    future.set_exception(error)

        if done and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(settle)


def _run_pieces(db: sqlite3.Connection, batch: Sequence[_Piece]) -> list[_Done]:
    """Run the pieces of a batch; if one is refused, only its own changes are undone."""
    done: list[_Done] = []
    for piece in batch:
        # Each piece by itself: one that is refused must not take back what others in the batch have done.
        db.execute("SAVEPOINT piece")
        done.append(_run_piece(db, *piece, back="ROLLBACK TO piece"))
        db.execute("RELEASE piece")
    return done


def _run_piece(
    db: sqlite3.Connection,
    run: Callable[[sqlite3.Connection], Any],
    future: asyncio.Future[Any] | None,
    *,
    back: str = "ROLLBACK",
) -> _Done:
    """Run one piece of work; if it is refused, its changes are undone."""
    try:
        return future, run(db), None
    except Exception as error:
        # An error of the file concerns the whole batch, which can't be committed any more.
        if isinstance(error, sqlite3.Error) and not isinstance(error, _ITS_OWN):
            raise
        db.execute(back)
        return future, None, error
