"""Which tools a session's model is offered, and how each is described; nothing of it decides about calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final, Literal

from sessiontree.contracts.program_tool import ProgramTool, SavedProgram, ToolFinder
from sessiontree.contracts.programs import STARTS_CHILDREN
from sessiontree.dispatch.tool_table import ToolEntry
from sessiontree.models.port import ToolSpec
from sessiontree.policy.catalog import CATALOG
from sessiontree.programs.tool_list import IN_SCHEMAS, SEARCHED, describe_program
from sessiontree.schema.compiled import CompiledTool
from sessiontree.schema.dialect import dialect_for_model

FIRST: Final = ("read", "write", "edit", "find", "grep", "exec")
"""The tools that programs need most, first of all in their list."""
MAX_DESCRIPTIONS: Final = 64
_PLACES: Final = {row.name: place for place, row in enumerate(CATALOG)}


class ToolOffer:
    """The tools of one session as its model sees them.

    Args:
        entries: The tools that the session holds, sorted by name.
        offered: What the agent wants offered: all, or the means of programs.
    """

    def __init__(self, entries: Iterable[ToolEntry], offered: Literal["all", "program"]) -> None:
        self._entries = list(entries)
        self._offered = offered
        self._kept: tuple[str, Collection[str], tuple[ToolSpec, ...]] = ("", (), ())
        self.names = tuple(entry.name for entry in self._shown(self._entries))
        """Those that its model is offered."""

    def show(self, model: str, gone: frozenset[str] = frozenset()) -> tuple[ToolSpec, ...]:
        """Return the offered tools in the dialect of a model, without some; the last answer is kept.

        Linear in the number of tools.
        """
        kept_model, kept_gone, specs = self._kept
        if not specs or (kept_model, kept_gone) != (model, gone):
            dialect = dialect_for_model(model)
            held = [entry for entry in self._entries if entry.name not in gone]
            shown = self._shown(held)
            rest = IN_SCHEMAS if len(shown) == len(held) else SEARCHED
            specs = tuple(
                ToolSpec(entry.name, _description(entry, held, rest), entry.compiled.shown_in(dialect).schema)
                for entry in shown
            )
            self._kept = (model, gone, specs)
        return specs

    def _shown(self, held: list[ToolEntry]) -> list[ToolEntry]:
        """Return what is offered: all, unless programs can call the others and a search finds them."""
        means = [entry for entry in held if _is_means(entry)]
        both = {_takes_text(entry) for entry in means}
        return means if self._offered == "program" and len(both) > 1 else held


def _description(entry: ToolEntry, held: list[ToolEntry], rest: str) -> str:
    if not _takes_text(entry):
        return entry.tool.description
    callable_ = [each for each in sorted(held, key=_usefulness) if not _is_means(each)]
    return _described(entry.tool.description, tuple((each.name, each.compiled) for each in callable_), rest)


@lru_cache(maxsize=MAX_DESCRIPTIONS)
def _described(description: str, tools: tuple[tuple[str, CompiledTool], ...], rest: str) -> str:
    """Return the description for sessions that hold equal tools: thousands of Workers have one text."""
    return describe_program(
        description, ((name, compiled.schema) for name, compiled in tools), STARTS_CHILDREN, rest
    )


def _is_means(entry: ToolEntry) -> bool:
    """Whether a tool is a way to the others, so that no program calls it."""
    return _takes_text(entry) or isinstance(entry.tool, ToolFinder)


def _takes_text(entry: ToolEntry) -> bool:
    """Whether a call brings the text of its program."""
    return isinstance(entry.tool, ProgramTool) and not isinstance(entry.tool, SavedProgram)


def _usefulness(entry: ToolEntry) -> tuple[int, int, str]:
    """Return a tool's place in a list for programs: what they need most, the owner's own tools, the rest."""
    if entry.name in FIRST:
        return 0, FIRST.index(entry.name), entry.name
    if entry.name not in _PLACES:
        return 1, 0, entry.name
    return 2, _PLACES[entry.name], entry.name
