"""Keys of requests: a client that sends a request again, because no answer came, begins one turn.

The key is in the ids of what the request began. So the journal says whether it began, also after a restart.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import field
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.conversations import ConflictError

MAX_CHARS: Final = 255
_FORM: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_CHARS}}}")
_DIGITS: Final = 12


class KeyUsedError(ConflictError):
    """The key of a request belongs to another request."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key of one request, and what the request asks."""

    name: str
    """Digest of the principal and of the key."""
    asked: str = field(compare=False)
    """Digest of what the request asks."""

    def tree_id(self, forked: str = "") -> str:
        """Return the id of the tree that the request makes.

        Args:
            forked: The tree of which it is a fork; empty = it is a new conversation.
        """
        return f"t{_digest(f'{self.name} {forked}')[:16]}"

    def turn_id(self, conversation_id: str) -> str:
        """Return the id of the turn that the request begins in a conversation."""
        return f"{conversation_id}_{self.name[:_DIGITS]}{self.asked[:_DIGITS]}"

    def find(self, conversation_id: str, turn_ids: Iterable[str]) -> str | None:
        """Return the turn that a request with this key began in a conversation; None = none did.

        Args:
            conversation_id: The conversation.
            turn_ids: Its turns.

        Raises:
            KeyUsedError: a request that asked for something else did.
        """
        own = self.turn_id(conversation_id)
        for turn_id in turn_ids:
            if turn_id == own:
                return own
            if turn_id.startswith(own[:-_DIGITS]):
                raise KeyUsedError("Idempotency-Key: another request of this conversation had this key")
        return None


def read_key(principal_id: str, given: str | None, asked: Any) -> RequestKey | None:
    """Return the key of a request; None = it has none.

    Args:
        principal_id: Whose request it is: keys of others are other keys.
        given: The key.
        asked: The request, as JSON.

    Raises:
        ConfigError: it can't be a key.
    """
    if given is None:
        return None
    if _FORM.fullmatch(given) is None:
        raise ConfigError(f"Idempotency-Key: give 1 to {MAX_CHARS} characters of ASCII without spaces")
    return RequestKey(_digest(f"{principal_id} {given}"), _digest(json.dumps(asked, sort_keys=True)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
