"""Tokens: who may come in by a door, until when, and the file that keeps their digests.

A token is shown once. The file has its digest alone; the secret is random, so a plain digest is enough.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from sessiontree.api.agents.owned_files import PRIVATE, replace_owned
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.settings import StrictSettings, describe_faults
from sessiontree.doors.principals import DoorName, DoorPrincipal, DoorRights

PREFIX: Final = "sessiontree"
"""What a token begins with, so that scanners of secrets know it."""
MAX_TOKENS: Final = 1_000
MAX_DAYS: Final = 3_650
_FORM: Final = re.compile(rf"{PREFIX}_([0-9a-f]{{12}})_([A-Za-z0-9_-]{{43}})")


class DoorToken(StrictSettings):
    """One token, without its secret."""

    token_id: str
    """Names it in commands, in logs and as the sender of messages."""
    name: DoorName
    """Says for people what it is for."""
    rights: DoorRights
    digest: str
    """SHA-256 of its secret, hexadecimal."""
    created_at_ms: int
    expires_at_ms: int | None = None
    """When it lets nobody in any more; None = it does not expire."""
    is_revoked: bool = False

    @property
    def principal(self) -> DoorPrincipal:
        """Who comes in by it."""
        return DoorPrincipal(f"token:{self.token_id}", self.name, self.rights)

    def refusal(self, now_ms: int) -> str:
        """Return why it lets nobody in; empty = it does."""
        if self.is_revoked:
            return "the token was revoked"
        if self.expires_at_ms is not None and self.expires_at_ms <= now_ms:
            return "the token has expired"
        return ""


_FILE: Final = TypeAdapter(list[DoorToken])


class TokenFile:
    """The tokens of a state directory, in a file that its owner alone reads.

    Each question reads it again if it has changed, so that a revocation holds at once in every process.

    Args:
        state_dir: The state directory.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "doors" / "tokens.json"
        self._seen: tuple[int, int, int] | None = None
        self._tokens: tuple[DoorToken, ...] = ()

    def add(self, name: str, rights: DoorRights, now_ms: int, expires_at_ms: int | None) -> str:
        """Make a token and return it; nothing else ever shows it.

        Raises:
            ConfigError: there are too many, or the file can't be read or written.
        """
        secret = secrets.token_urlsafe(32)
        token_id = secrets.token_hex(6)
        made = DoorToken(
            token_id=token_id,
            name=name,
            rights=rights,
            digest=_compute_digest(secret),
            created_at_ms=now_ms,
            expires_at_ms=expires_at_ms,
        )
        with self._change() as tokens:
            if len(tokens) >= MAX_TOKENS:
                raise ConfigError(f"there are {MAX_TOKENS:,} tokens; forget those that are revoked")
            tokens.append(made)
        return f"{PREFIX}_{token_id}_{secret}"

    def revoke(self, token_id: str) -> DoorToken:
        """Let a token let nobody in any more; return it.

        Raises:
            ConfigError: no token has that id, or the file can't be read or written.
        """
        with self._change() as tokens:
            for place, each in enumerate(tokens):
                if each.token_id == token_id:
                    tokens[place] = each.model_copy(update={"is_revoked": True})
                    return tokens[place]
        raise ConfigError(f"no token is called {token_id!r}; `sessiontree tokens list` shows all")

    def all(self) -> tuple[DoorToken, ...]:
        """Return all tokens, oldest first.

        Raises:
            ConfigError: the file can't be read.
        """
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return ()
        # With the inode: two writes within one tick of the clock may leave the same time and size.
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._tokens = tuple(self._read())
            self._seen = seen
        return self._tokens

    def find(self, given: str, now_ms: int) -> DoorToken:
        """Return the token whose text was given.

        Raises:
            ConfigError: it is unknown, was revoked, or has expired; does not repeat what was given.
        """
        form = _FORM.fullmatch(given)
        token_id, secret = ("", "") if form is None else form.groups()
        for each in self.all():
            # The id is public. The digest is secret, so it is compared in constant time.
            if each.token_id == token_id and hmac.compare_digest(each.digest, _compute_digest(secret)):
                if refusal := each.refusal(now_ms):
                    raise ConfigError(f"{refusal}: make another one with `sessiontree tokens create`")
                return each
        raise ConfigError("the token is not one of this server")

    def _read(self) -> list[DoorToken]:
        try:
            return _FILE.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"the tokens in {self._path} can't be read: {error}") from error
        except ValidationError as error:
            raise ConfigError(f"the tokens in {self._path} can't be read: {describe_faults(error)}") from None

    @contextmanager
    def _change(self) -> Iterator[list[DoorToken]]:
        """Give the tokens, and write them as they are left; other processes wait."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A file of its own: the file of tokens is replaced, and a lock on it would stay with the old one.
            lock = os.open(self._path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, PRIVATE)
        except OSError as error:
            raise ConfigError(f"the tokens in {self._path} can't be changed: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = self._read()
            yield tokens
            replace_owned(self._path, _FILE.dump_json(tokens, indent=1))
        except OSError as error:
            raise ConfigError(f"the tokens in {self._path} can't be changed: {error}") from error
        finally:
            os.close(lock)


def _compute_digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
