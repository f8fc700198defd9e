"""Ids and names of tool calls as a provider takes them: the journal keeps its own, a model sees a form.

Sources, read in autumn 2026: Mistral's message "Tool call id was … but must be a-z, A-Z, 0-9, with a length
of 9"; Anthropic's pattern ``^[a-zA-Z0-9_-]+$`` of ``tool_use.id``, and 64 characters as its other names;
OpenAI's message "string too long. Expected a string with maximum length 40". Gemini has no rule.
Names: OpenAI's and Anthropic's message "String does not match pattern … ``^[a-zA-Z0-9_-]+$``", and 64
characters, the least that one of them takes; Gemini's must begin with a letter or an underscore.
Seed 000, section 4: ids pass unchanged wherever the provider takes them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class IdGrammar:
    """The ids one provider takes."""

    pattern: re.Pattern[str]
    make: Callable[[bytes], str]
    """Gives an id that fits, of a digest of 32 bytes."""

    def fits(self, call_id: str) -> bool:
        """Whether the provider takes an id as it is."""
        return self.pattern.fullmatch(call_id) is not None


def _letters(digest: bytes) -> str:
    number = int.from_bytes(digest, "big")
    made = ""
    for _ in range(9):
        number, rest = divmod(number, len(_LETTERS))
        made += _LETTERS[rest]
    return made


def _named(digest: bytes) -> str:
    return f"call_{digest[:16].hex()}"


_LONG = IdGrammar(re.compile(r"[\s\S]{1,40}"), _named)
GRAMMARS: Final = {
    "anthropic": IdGrammar(re.compile(r"[a-zA-Z0-9_-]{1,64}"), _named),
    "mistral": IdGrammar(re.compile(r"[a-zA-Z0-9]{9}"), _letters),
    "openai": _LONG,
    "openai-strict": _LONG,
}
"""By the name of a schema dialect; providers not named take any id."""
NAMES: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names that every provider takes but for those below; of one that is not known, too."""
_GEMINI: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
NAMES_OF: Final = {"gemini": _GEMINI, "gemini-openapi": _GEMINI}
"""By the name of a schema dialect."""
_NAME_PARTS: Final = re.compile(r"[a-zA-Z0-9]+")
_MAX_KEPT: Final = 40
_DIGITS: Final = 12


class CallNames:
    """The names of one conversation's calls, in both forms. Grows with its names.

    A model may call a tool by anything, and a provider that refuses a name refuses the whole conversation
    that holds it. A name that fits is shown as it is, any other as what fits of it and a digest: one form for
    each name, the same wherever it stands, and after a restart.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._shown: dict[str, str] = {}
        self._given: set[str] = set()

    def shown(self, own: str) -> str:
        """Return the provider's form of a name."""
        known = self._shown.get(own)
        if known is not None:
            return known
        form = own
        attempt = 0
        while form in self._given or self._pattern.fullmatch(form) is None:
            attempt += 1
            words = f"{attempt}.{own}"
            digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
            kept = "_".join(_NAME_PARTS.findall(own))[:_MAX_KEPT]
            form = f"{kept if kept[:1].isalpha() else f'tool_{kept}'}_{digest[:_DIGITS]}"
        self._shown[own] = form
        self._given.add(form)
        return form


class CallIds:
    """The ids of one conversation's calls, in both forms. Grows with its calls.

    An id that fits and was not given out is shown as it is, any other as a digest of itself. A provider may
    give the same id to calls of two replies, and refuse a conversation that has it twice: every call has an
    id of its own here. The same calls in the same order give the same ids, so they stand from turn to turn
    and after a restart; those shown, shown again, stay as they are.
    """

    def __init__(self, grammar: IdGrammar) -> None:
        self._grammar = grammar
        self._times: dict[str, int] = {}
        self._own: dict[str, str] = {}

    def shown(self, own: str) -> str:
        """Return the provider's form of the id of a conversation's next call."""
        times = self._times[own] = self._times.get(own, 0) + 1
        form = own
        attempt = 0
        while form in self._own or not self._grammar.fits(form):
            attempt += 1
            words = f"{times}.{attempt}.{own}"
            form = self._grammar.make(hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest())
        self._own[form] = own
        return form

    def own(self, shown: str) -> str:
        """Return the id a shown one stands for; one that was never shown stands for itself."""
        return self._own.get(shown, shown)
