"""What cleaning a schema for a provider changed: nothing is lost without a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.schema.keywords import Schema
from sessiontree.schema.pointer import json_pointer

Effect: TypeAlias = Literal["same", "wider", "narrower"]
"""What became of the values that fit: as many, more, or fewer than the tool itself takes."""
Place: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the root down."""


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """One thing a model is not told, or told otherwise."""

    pointer: str
    """Where the keyword stood, as a JSON pointer into the tool's own schema; ``""`` is the root."""
    keyword: str
    effect: Effect
    done: str
    """What was done about it."""

    def to_wire(self) -> dict[str, JsonValue]:
        """Return ``{pointer, keyword, effect, done}``."""
        return {
            "pointer": self.pointer,
            "keyword": self.keyword,
            "effect": self.effect,
            "done": self.done,
        }


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A schema as one dialect takes it."""

    schema: Schema
    """Not to be changed."""
    losses: tuple[Loss, ...]
    """In the order met, each once. What is lost here is still asked of every call: a tool's own schema
    decides, whatever its model was shown."""

    @property
    def is_lossy(self) -> bool:
        """Whether the model is shown another set of values than the tool takes."""
        return any(loss.effect != "same" for loss in self.losses)


class LossReport:
    """Losses while they are found."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Loss, None] = {}

    def add(self, place: Place, keyword: str, effect: Effect, done: str) -> None:
        """Note one; a repeat changes nothing."""
        self._found[Loss(json_pointer(*place), keyword, effect, done)] = None

    def finished(self) -> tuple[Loss, ...]:
        """Return them in the order they were noted."""
        return tuple(self._found)
