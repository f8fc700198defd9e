"""The settings of a run that may change while it runs: whether it pauses, how many attempts, how long each.

A command writes them into the ledger; each program that works on the run takes them over within a beat.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

from pydantic import Field

from sessiontree import ConfigError
from sessiontree.contracts.settings.given_values import Give, TimeLimit, Toggle, check_names, take_members
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_CONCURRENCY: Final = 100_000
Concurrency = Annotated[
    Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)], Give(f"a whole number from 1 to {MAX_CONCURRENCY:,}")
]


class ControlValues(TypedDict, total=False):
    """What a ledger's controls may say."""

    paused: Toggle
    concurrency: Concurrency
    sample_timeout_s: TimeLimit


SETTABLE: Final = ("concurrency", "sample_timeout")
"""What ``sessiontree bench set`` takes."""


@dataclass(slots=True)
class RunSettings:
    """What one program works with at the moment.

    Args:
        concurrency: How many attempts at a time, over all programs that work on the run.
        sample_timeout_s: Time limit of one sample.
    """

    concurrency: int
    sample_timeout_s: float | None
    is_paused: bool = False

    def take(self, controls: Mapping[str, str]) -> list[str]:
        """Take over what the ledger says, as JSON by name; return what changed, in words."""
        given = take_members({name: json.loads(text) for name, text in controls.items()}, ControlValues)
        changed = []
        paused = bool(given.get("paused", self.is_paused))
        if paused != self.is_paused:
            self.is_paused = paused
            changed.append("paused: attempts that run go on to their end" if paused else "it goes on")
        for name in ("concurrency", "sample_timeout_s"):
            value = given.get(name, getattr(self, name))
            if value != getattr(self, name):
                changed.append(f"{name} was {getattr(self, name)} and is {value}")
                setattr(self, name, value)
        return changed


def parse_controls(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the controls of ``name=value`` words, checked.

    Raises:
        ConfigError: a name is unknown, or a value is not valid.
    """
    check_names(words, SETTABLE, "bench set")
    found: dict[str, Any] = {}
    for name, text in words.items():
        try:
            value = parse_json(text)
        except ValueError:
            value = text
        if name == "sample_timeout":
            found["sample_timeout_s"] = None if text == "none" else value
        else:
            found[name] = value
    if not found:
        raise ConfigError(
            f"bench set changes nothing; give one of {', '.join(f'{each}=…' for each in SETTABLE)}"
        )
    return take_members(found, ControlValues, "bench set: ")
