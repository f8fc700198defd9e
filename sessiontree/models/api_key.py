"""Provider keys: never shown, never pickled, passed in memory only to the process that asks.

In the program a key holds its text. Pickled, it is a reference of 128 random bits, and the key's name if it
has one. A process that opens it asks for the text at the first use, in the way that was set for that process.
"""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakValueDictionary

from sessiontree.contracts.errors import ConfigError, ModelError
from sessiontree.models.named_key import OF_VARIABLE, check_key_name, read_named_key

_KEYS: WeakValueDictionary[str, ApiKey] = WeakValueDictionary()
_FORMS: Final[tuple[Callable[[str], str], ...]] = (
    str,
    lambda text: json.dumps(text)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: repr(text.encode())[2:-1],
    lambda text: html.escape(text),
    lambda text: quote(text),
    lambda text: quote(text, safe=""),
)
"""How an error's text may write a secret."""
_way: list[Callable[[str, str], str]] = []
"""How this process asks for a key's text; at most one entry."""
_packing: ContextVar[list[ApiKey] | None] = ContextVar("packing", default=None)
"""The keys that are pickled in this context; None = nobody asks which."""


class ApiKey:
    """A secret text.

    Args:
        text: The secret; None = it is requested at the first use.
        reference: Identifies it in every process; empty = a new reference.
        name: The place that holds it on each machine; empty = the program alone holds it.
    """

    __slots__ = ("__weakref__", "_reference", "_text", "name")

    def __init__(self, text: str | None, reference: str = "", name: str = "") -> None:
        self._text = text
        self.name = name
        self._reference = reference or secrets.token_hex(16)
        # Weak, so that a key's text does not outlive the model that holds it.
        _KEYS[self._reference] = self

    @classmethod
    def given(cls, text: object, place: str, name: str = "") -> ApiKey:
        """Return the key with this text.

        Args:
            text: The secret: visible ASCII characters, because it is sent in a header.
            place: Where it is from, for the error.
            name: The place that holds it on each machine, if it has one.

        Raises:
            ConfigError: the text can't be a key; does not show it.
        """
        if not isinstance(text, str) or not re.fullmatch(r"[\x21-\x7e]+", text):
            raise ConfigError(
                f"{place}: give the provider's key as text without spaces, line ends or letters beyond ASCII"
            )
        return cls(text, name=name)

    @classmethod
    def named(cls, name: object, place: str) -> ApiKey:
        """Return the key that is at a place of this machine, and at the same place of each other one.

        Args:
            name: ``env:VARIABLE`` or ``file:/path``.
            place: Where the name is from, for the error.

        Raises:
            ConfigError: it is not such a name, or no key is there.
        """
        checked = check_key_name(name, place)
        try:
            text = read_named_key(checked)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        return cls.given(text, checked, checked)

    @classmethod
    def from_environment(cls, *names: str) -> ApiKey | None:
        """Return the key from the first of these variables that is set, or None if none is set.

        Raises:
            ConfigError: the variable holds something that can't be a key.
        """
        found = ((name, os.environ.get(name, "").strip()) for name in names)
        return next((cls.given(text, name, OF_VARIABLE + name) for name, text in found if text), None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a reference and a name."""
        packing = _packing.get()
        if packing is not None:
            packing.append(self)
        return _resolve_reference, (self._reference, self.name)

    def __repr__(self) -> str:
        """Return a text without the secret."""
        return "ApiKey(…)"

    async def text(self) -> str:
        """Return the secret; a process that does not hold it yet asks for it.

        Raises:
            ModelError: it is not available here; asking again may help.
        """
        if self._text is None:
            if not _way:
                raise ModelError("this process has no way to a provider's key; ask through the model gateway")
            try:
                # In a thread, because the way may be a connection to the program, which blocks.
                self._text = await asyncio.to_thread(_way[0], self._reference, self.name)
            except OSError as error:
                raise ModelError(f"the program did not hand over a provider's key: {error}", True) from None
        return self._text

    def hide_in(self, text: str) -> str:
        """Return a text with the secret removed, also as JSON, Python, HTML or an address writes it."""
        if self._text:
            written = {form(self._text) for form in _FORMS}
            for secret in sorted(written, key=len, reverse=True):  # a form may contain another
                text = text.replace(secret, "…")
        return text


def _resolve_reference(reference: str, name: str) -> ApiKey:
    return _KEYS.get(reference) or ApiKey(None, reference, name)


@contextmanager
def collect_packed_keys() -> Iterator[list[ApiKey]]:
    """Return a list that gets the keys which are pickled in this context."""
    found: list[ApiKey] = []
    token = _packing.set(found)
    try:
        yield found
    finally:
        _packing.reset(token)


def get_key_text(reference: str) -> str | None:
    """Return the secret for a reference, or None if this process does not hold it."""
    key = _KEYS.get(reference)
    return None if key is None else key._text  # noqa: SLF001 - of this module


def is_key(text: str) -> bool:
    """Whether a text is a key that this process holds."""
    # A copy, because a key can be collected during the loop, which changes the dictionary.
    return any(key._text == text.strip() for key in list(_KEYS.values()))  # noqa: SLF001 - of this module


def ask_for_keys_by(way: Callable[[str, str], str]) -> None:
    """Set the function that asks for a key's text by its reference and name.

    It is called in a thread and may raise OSError.
    """
    _way[:] = [way]
