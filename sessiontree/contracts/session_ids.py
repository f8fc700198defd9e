"""Ids that leave a tree: the same on repetition and replay, different in every other tree and session.

A tree's first row holds a random nonce. Each session has a key, the HMAC-SHA-256 of the nonce and the
session's path; an id is the HMAC-SHA-256 of that key, what the id is for, and what it names. A host holds the
keys of its sessions and not the nonce. A tree that is copied under another nonce has other ids.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Literal, TypeAlias

Purpose: TypeAlias = Literal["request", "call", "client"]

MAIN: Final = "main"
"""Id of every tree's root session."""
ID_CHARS: Final = 32
"""128 bits in hexadecimal."""
_BLOCK_BYTES: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


def session_key(nonce: str, session_id: str) -> str:
    """Return the key of a session's ids, hexadecimal; empty for a tree without a nonce."""
    return hmac.digest(bytes.fromhex(nonce), session_id.encode(), "sha256").hex() if nonce else ""


class SessionIds:
    """Makes the ids of one session.

    Args:
        session_id: Path of the session.
        key: Its :func:`session_key`. Empty = the tree is of a release before nonces, and has ids as that
            release made them: the same in every tree.
    """

    __slots__ = ("_inner", "_outer", "key", "session_id")

    def __init__(self, session_id: str, key: str = "") -> None:
        """Take the key in once; an id then costs less than a microsecond."""
        self.session_id = session_id
        self.key = key
        padded = bytes.fromhex(key).ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(padded.translate(_INNER))
        self._outer = hashlib.sha256(padded.translate(_OUTER))

    def __eq__(self, other: object) -> bool:
        """Whether the other makes the same ids."""
        if not isinstance(other, SessionIds):
            return NotImplemented
        return (self.session_id, self.key) == (other.session_id, other.key)

    def __hash__(self) -> int:
        """Return a hash of what the ids are made of."""
        return hash((self.session_id, self.key))

    def __repr__(self) -> str:
        """Return what the ids are made of."""
        return f"SessionIds({self.session_id!r}, {self.key!r})"

    def __reduce__(self) -> tuple[type[SessionIds], tuple[str, str]]:
        """Say how to make a copy: hash states have none of their own."""
        return SessionIds, (self.session_id, self.key)

    def request(self, key: str) -> str:
        """Return the id of the approval request of the call with a key."""
        if self.key:
            return self._id_of("request", key)
        return hashlib.sha256(f"{self.session_id}#{key}".encode()).hexdigest()[:ID_CHARS]

    def call(self, key: str) -> str:
        """Return the id by which a tool knows the call with a key: its idempotency key."""
        return self._id_of("call", key) if self.key else f"{self.session_id}#{key}"

    def client(self, key: str) -> str | None:
        """Return the id by which the program knows the call with a key; None = chance gives it one."""
        return self._id_of("client", key) if self.key else None

    def _id_of(self, purpose: Purpose, key: str) -> str:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(f"{purpose}\0{key}".encode())
        outer.update(inner.digest())
        return outer.hexdigest()[:ID_CHARS]
