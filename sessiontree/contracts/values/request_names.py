"""Names of a tree's model requests, by which trainers join what they recorded with what the tree knows."""

from __future__ import annotations

import hashlib
from typing import Final

EDGES_KEY: Final = "ai.prime.acp/semantic-edges-v1"
"""Where readers of semantic edges look for them, in metadata."""
REQUEST_HEADER: Final = "X-ACP-Model-Request-ID"
"""HTTP header by which a request to a model says its name."""
MAX_CHARS: Final = 128
"""Longest name that readers take; they take letters, digits, and ``._:-``."""
_DIGEST_CHARS: Final = 32


def request_name(session: str, turn: int) -> str:
    """Return the name of a session's request, such as ``main.b1:3``; all attempts of a turn share it.

    A path that is too long is replaced by a digest of it, so names are unique in a tree.
    """
    name = f"{session.replace('/', '.')}:{turn}"
    if len(name) <= MAX_CHARS:
        return name
    return f"{hashlib.sha256(session.encode()).hexdigest()[:_DIGEST_CHARS]}:{turn}"


def parse_turn(key: str) -> int | None:
    """Return the turn whose reply asked for the call with a key, or for its program; None = no reply did."""
    turn = key.partition(".")[0]
    return int(turn) if turn.isdecimal() else None
