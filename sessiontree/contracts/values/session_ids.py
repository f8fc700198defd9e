"""Ids that leave a tree: the same on repetition and replay, different in every other tree and session.

A tree's first row contains a random nonce. Each session has a key, the HMAC-SHA-256 of the nonce and the
session's path. An id is the HMAC-SHA-256 of that key, the id's purpose, and what it identifies. A host has
the keys of its sessions, but not the nonce. A copy of a tree with another nonce has other ids.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from _hashlib import HASH

Purpose: TypeAlias = Literal["request", "call", "client"]

MAIN: Final = "main"
"""Id of every tree's root session."""
ID_CHARS: Final = 32
"""128 bits in hexadecimal."""
_BLOCK_BYTES: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


def compute_session_key(nonce: str, session_id: str) -> str:
    """Return the key of a session's ids, hexadecimal."""
    inner, outer = _begin_tree_hashes(nonce)
    return _compute_hmac(inner, outer, session_id)


def _begin_hashes(key: bytes) -> tuple[HASH, HASH]:
    """Return the two hashes of an HMAC-SHA-256, which have taken the key in."""
    if len(key) > _BLOCK_BYTES:
        key = hashlib.sha256(key).digest()
    padded = key.ljust(_BLOCK_BYTES, b"\0")
    return hashlib.sha256(padded.translate(_INNER)), hashlib.sha256(padded.translate(_OUTER))


@lru_cache(maxsize=64)
def _begin_tree_hashes(nonce: str) -> tuple[HASH, HASH]:
    """Return the hashes for the keys of a tree's sessions; every child that is started needs them."""
    return _begin_hashes(bytes.fromhex(nonce))


def _compute_hmac(inner: HASH, outer: HASH, text: str) -> str:
    """Return the HMAC of a text, hexadecimal, from the two hashes that have taken the key in."""
    # Copies, because the hashes that have taken the key in serve for every id.
    inner, outer = inner.copy(), outer.copy()
    inner.update(text.encode())
    outer.update(inner.digest())
    return outer.hexdigest()


class SessionIds:
    """Makes the ids of one session.

    Args:
        session_id: Path of the session.
        key: Its :func:`compute_session_key`; empty in a state that is only read, whose ids nobody uses.
    """

    __slots__ = ("_inner", "_outer", "key", "session_id")

    def __init__(self, session_id: str, key: str) -> None:
        self.session_id = session_id
        self.key = key
        self._inner, self._outer = _begin_hashes(bytes.fromhex(key))

    def __eq__(self, other: object) -> bool:
        """Return whether the other makes the same ids."""
        if not isinstance(other, SessionIds):
            return NotImplemented
        return (self.session_id, self.key) == (other.session_id, other.key)

    def __hash__(self) -> int:
        """Return a hash of the path and the key."""
        return hash((self.session_id, self.key))

    def __repr__(self) -> str:
        """Return the call that makes an equal value."""
        return f"SessionIds({self.session_id!r}, {self.key!r})"

    def __reduce__(self) -> tuple[type[SessionIds], tuple[str, str]]:
        """Return how to make a copy: hash states can't be pickled."""
        return SessionIds, (self.session_id, self.key)

    def request(self, key: str) -> str:
        """Return the id of the approval request of the call with a key."""
        return self._derive_id("request", key)

    def call(self, key: str) -> str:
        """Return the id that a tool gets for the call with a key: its idempotency key."""
        return self._derive_id("call", key)

    def client(self, key: str) -> str:
        """Return the id that the program gets for the call with a key."""
        return self._derive_id("client", key)

    def _derive_id(self, purpose: Purpose, key: str) -> str:
        # With a zero byte, which no purpose holds, so that no two pairs give one text.
        return _compute_hmac(self._inner, self._outer, f"{purpose}\0{key}")[:ID_CHARS]
