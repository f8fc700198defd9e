"""Names of servers' tools as a model sees them: ``mcp__server__tool``."""

from __future__ import annotations

import hashlib
import re
from typing import Final

MAX_CHARS: Final = 64
"""Longest name that providers accept."""
HASH_CHARS: Final = 8
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


def make_tool_name(server: str, tool: str) -> str:
    """Return the name of a server's tool; a pure function of both names.

    Characters that providers refuse become ``_``. A name that is not the plain combination of both, because
    characters were replaced, it is too long, or it could be that of another pair, ends in a hash of both.
    """
    clean = f"mcp__{_OTHER.sub('_', server)}__{_OTHER.sub('_', tool)}"
    is_plain = clean == f"mcp__{server}__{tool}" and "__" not in server and not tool.startswith("_")
    if is_plain and not server.endswith("_") and len(clean) <= MAX_CHARS:
        return clean
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:HASH_CHARS]
    return f"{clean[: MAX_CHARS - HASH_CHARS - 1]}_{digest}"
