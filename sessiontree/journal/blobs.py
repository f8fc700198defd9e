"""Texts that are too long for a segment, as files named by their SHA-256."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from sessiontree.journal.segment import DamageError

_PART = ".part"


class BlobStore:
    """The blob files of one journal, all in one directory.

    Args:
        directory: Made on the first write.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @staticmethod
    def digest(text: str) -> str:
        """Return the name (64 hex digits) of an ASCII text."""
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def write(self, texts: Mapping[str, str]) -> None:
        """Write texts under their digests; when this returns, files and directory are on the disk.

        A whole file that exists is kept; a damaged one is replaced.

        Raises:
            OSError: the disk is full or failing; existing files are unchanged.
        """
        if not texts:
            return
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for digest, text in texts.items():
            if not self._is_whole(digest):
                self._write_file(digest, text)
        sync_directory(self._directory)
        # The directory itself may be new, and a power failure could take its name.
        sync_directory(self._directory.parent)

    def read(self, digest: str) -> str:
        """Return the text of a digest.

        Raises:
            DamageError: the file is missing, unreadable or altered.
        """
        try:
            data = (self._directory / digest).read_bytes()
        except OSError as error:
            raise DamageError(f"blob {digest} can't be read: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise DamageError(f"blob {digest} is altered")
        return data.decode("ascii", "replace")

    def remove(self, digests: Iterable[str]) -> None:
        """Delete blobs, and the unfinished files of a writer that was killed."""
        if not self._directory.is_dir():
            return
        for path in [self._directory / digest for digest in digests] + list(
            self._directory.glob(f"*{_PART}")
        ):
            path.unlink(missing_ok=True)

    def _is_whole(self, digest: str) -> bool:
        try:
            self.read(digest)
        except DamageError:
            return False
        return True

    def _write_file(self, digest: str, text: str) -> None:
        part = self._directory / f"{digest}{_PART}"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        # Renamed when it is whole and on the disk, so a digest never names half a text.
        part.replace(self._directory / digest)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: the disk is failing.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
