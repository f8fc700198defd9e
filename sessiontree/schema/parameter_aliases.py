"""Other spellings of parameter names, resolved before anything looks at a value.

Source: seed 000, section 6; DESIGN section 9, parameter names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.schema.pointer import json_pointer

CLAUDE_STYLE = {"file_path": "path", "old_string": "old_text", "new_string": "new_text"}
"""Spellings some models were trained on, to what this house calls them."""

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Spellings:
    """Every spelling of one tool's parameters.

    Names come first, then the given aliases, then camelCase and snake_case of the names, then Claude-style
    names, then camelCase and snake_case of all aliases. A spelling that fits two parameters fits none.

    Args:
        names: The canonical names, as in the schema.
        aliases: Other spellings to canonical names.

    Raises:
        ConfigError: an alias leads to no parameter, or is itself the name of one.
    """

    __slots__ = ("_canonical",)

    def __init__(self, names: Iterable[str], aliases: Mapping[str, str]) -> None:
        canonical = {name: name for name in names}
        for alias, name in aliases.items():
            if name not in canonical:
                raise ConfigError(f"alias {alias!r} leads to {name!r}, which is none of {_listed(canonical)}")
            if alias in canonical and alias != name:
                raise ConfigError(f"alias {alias!r} is itself a parameter; drop one of the two")
        own = [*canonical.items()]
        self._canonical = canonical
        self._add(aliases.items())
        self._add(_other_cases(own))
        claude = [
            (alias, name)
            for name, _ in own
            for alias, wanted in CLAUDE_STYLE.items()
            if snake_case(name) == wanted
        ]
        self._add(claude)
        self._add(_other_cases([*aliases.items(), *claude]))

    def canonical(self, spelling: str) -> str | None:
        """Return the name a spelling stands for, or None."""
        return self._canonical.get(spelling)

    def rename(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments by canonical name, in the order given; unknown ones keep their name.

        Raises:
            ValidationError: two spellings of one parameter are given.
        """
        renamed: dict[str, object] = {}
        given: dict[str, str] = {}
        for spelling, value in arguments.items():
            name = self._canonical.get(spelling, spelling)
            if name in given:
                raise ValidationError(
                    f"{given[name]!r} and {spelling!r} are two spellings of one parameter; give one of them",
                    json_pointer(name),
                )
            given[name] = spelling
            renamed[name] = value
        return renamed

    def _add(self, spellings: Iterable[tuple[str, str]]) -> None:
        """Add spellings of one rank; those of a higher rank stay as they are."""
        found: dict[str, set[str]] = {}
        for spelling, name in spellings:
            if spelling not in self._canonical:
                found.setdefault(spelling, set()).add(name)
        self._canonical |= {spelling: names.pop() for spelling, names in found.items() if len(names) == 1}


def snake_case(name: str) -> str:
    """Return ``file_path`` for ``filePath``."""
    return _WORD_START.sub("_", name).lower()


def camel_case(name: str) -> str:
    """Return ``filePath`` for ``file_path``; underscores at the ends stay."""
    return re.sub(r"(?<=[A-Za-z0-9])_+([A-Za-z0-9])", lambda match: match[1].upper(), name)


def _other_cases(spellings: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(change(spelling), name) for spelling, name in spellings for change in (camel_case, snake_case)]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "its (no) parameters"
