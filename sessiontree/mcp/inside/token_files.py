"""Stored OAuth tokens: one private file for each issuer and resource, changed by one process at a time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

PRIVATE: Final = 0o600


class TokenPlace:
    """The stored tokens for one server's address.

    Args:
        folder: The owner's folder of tokens.
        url: The server's address.
    """

    def __init__(self, folder: str, url: str) -> None:
        self._folder = Path(folder)
        self._url = url

    def read(self) -> dict[str, Any] | None:
        """Return what is stored: url, issuer, resource, token_url, client, tokens, expires_at; or None."""
        found = self._find()
        return None if found is None else found[1]

    def write(self, value: dict[str, Any]) -> None:
        """Store the tokens of one issuer and resource; earlier ones of this address are replaced.

        Raises:
            OSError: the file can't be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = f"{value.get('issuer')}\0{value.get('resource')}"
        place = self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
        # Private from its first byte: tokens must not be readable even between making the file and limiting
        # it.
        new = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
        with os.fdopen(descriptor, "w") as file:
            json.dump({**value, "url": self._url}, file)
            file.flush()
            os.fsync(file.fileno())
        earlier = self._find()
        # Replaced in one step, because readers take no lock.
        new.replace(place)
        # The same address may have another issuer now, and of two files the name would decide which one is
        # read.
        if earlier is not None and earlier[0] != place:
            earlier[0].unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let one process of this machine change the tokens at a time; blocks.

        Raises:
            OSError: the lock can't be opened.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = hashlib.sha256(self._url.encode()).hexdigest()[:32]
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
        descriptor = os.open(self._folder / f"{name}.lock", flags, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _find(self) -> tuple[Path, dict[str, Any]] | None:
        for path in sorted(self._folder.glob("*.json")):
            with suppress(OSError, ValueError, RecursionError):
                value = json.loads(path.read_text())
                if isinstance(value, dict) and value.get("url") == self._url:
                    return path, value
        return None
