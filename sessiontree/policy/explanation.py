"""Why a session holds a tool, or which step took it first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sessiontree.contracts.jsonable import JsonValue

ListName: TypeAlias = Literal["profile", "allow", "deny", "rule"]
"""What of a step removed a tool: that its profile or allow list lacks it, an entry of its deny list, or a
rule of the house."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The first step that removed a tool, in the order of steps."""

    step: str
    """The step's label."""
    number: int
    """1 to 9; 0 for the steps before."""
    by: ListName
    pattern: str | None
    """The entry that removed it; the profile where that lacks it; None where an allow list does."""
    why: str
    """The same for people."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What becomes of one tool in one session."""

    tool: str
    """Its name; as it was asked for where no tool is called that."""
    kept: bool
    removal: Removal | None
    """None where the session holds it."""
    note: str = ""
    """What becomes of its calls where the session holds it; empty = what their tier says."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the members for a program; those about a removal are null where there was none."""
        gone = self.removal
        return {
            "tool": self.tool,
            "kept": self.kept,
            "step": None if gone is None else gone.step,
            "number": None if gone is None else gone.number,
            "by": None if gone is None else gone.by,
            "pattern": None if gone is None else gone.pattern,
            "why": None if gone is None else gone.why,
            "note": self.note,
        }

    def __str__(self) -> str:
        """Say it in one line."""
        if self.removal is None:
            return f"{self.tool} is held" + (f"; {self.note}" if self.note else "")
        number = f"step {self.removal.number}, " if self.removal.number else ""
        return f"{self.tool} is removed by {number}{self.removal.step}: {self.removal.why}"

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        """Yield what rich shows: the tool, and of its removal only what there is."""
        yield "tool", self.tool
        yield "kept", self.kept
        if self.removal is not None:
            yield "step", self.removal.step
            yield "pattern", self.removal.pattern
            yield "why", self.removal.why
        if self.note:
            yield "note", self.note
