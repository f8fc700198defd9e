"""Cutting long results before they are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.hooks import Hook, KeptResult
from sessiontree.contracts.jsonable import dump_readable
from sessiontree.contracts.truncation import cut_text
from sessiontree.hooks.leaves import map_texts, with_texts

LEAST_CHARS = 200


class Trim(Hook):
    """Cuts every text of a result, and of its details, to a length; never within a character.

    Of a call that failed each text inside its envelope is cut, so that the envelope stays one.

    Args:
        max_chars: Longest text, the notice of the cut included; at least 200.
    """

    name = "trim"

    def __init__(self, max_chars: int = 8_000) -> None:
        """Set the length.

        Raises:
            ConfigError: it is too short to say that something was cut.
        """
        if max_chars < LEAST_CHARS:
            raise ConfigError(f"Trim: max_chars is {max_chars}; give at least {LEAST_CHARS}")
        self._cut = partial(cut_text, max_chars=max_chars)

    def tool_result_persist(self, result: KeptResult) -> KeptResult:
        """Return the result with its long texts cut."""
        trimmed = with_texts(result, self._envelope if result.is_error else self._cut)
        return replace(trimmed, details=map_texts(result.details, self._cut))

    def _envelope(self, text: str) -> str:
        try:
            return dump_readable(map_texts(json.loads(text), self._cut))
        except ValueError:
            return self._cut(text)
