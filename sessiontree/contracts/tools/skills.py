"""Skills: instructions of the owner that a session reads when a task needs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sessiontree.contracts.values.quick_dataclass import dataclass

PLACE: Final = "/skills"
"""Where sessions see skills: tools that read files, and commands. Nothing can be written there."""
FILE: Final = "SKILL.md"
MAX_NAME_CHARS: Final = 64
MAX_DESCRIPTION_CHARS: Final = 1024


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill of a tree's owner."""

    name: str
    """Lower-case letters, digits and hyphens; the name of its folder."""
    description: str
    """One line: what it is for, and when to use it."""
    folder: str
    """Absolute path of the folder with ``SKILL.md`` and whatever else belongs to it, links resolved."""

    @property
    def place(self) -> str:
        """Where sessions see its folder."""
        return f"{PLACE}/{self.name}"


def format_skills_prompt(skills: Iterable[Skill], *, runs_commands: bool) -> str:
    """Return the part of a system prompt that lists skills; empty without skills.

    Args:
        skills: The skills that the session may read.
        runs_commands: Whether it may run commands.
    """
    listed = [f"- {skill.name}: {skill.description}" for skill in skills]
    if not listed:
        return ""
    runs = " Commands see the same files." if runs_commands else ""
    return (
        f"Skills: read {PLACE}/<name>/{FILE} before you begin a task that one of them is for.{runs}\n"
        + "\n".join(listed)
    )
