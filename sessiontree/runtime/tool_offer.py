"""Which tools a session's model is offered, and how each is described; nothing of it decides about calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from sessiontree.contracts.program_tool import ProgramTool, SavedProgram
from sessiontree.contracts.programs import STARTS_CHILDREN
from sessiontree.dispatch.tool_table import ToolEntry
from sessiontree.models.port import ToolSpec
from sessiontree.policy.catalog import CATALOG
from sessiontree.programs.tool_list import IN_SCHEMAS, with_functions
from sessiontree.schema.dialect import dialect_for_model

FIRST: Final = ("read", "write", "edit", "find", "grep", "exec")
"""The tools that programs need most, first of all in their list."""
_PLACES: Final = {row.name: place for place, row in enumerate(CATALOG)}


class ToolOffer:
    """The tools of one session as its model sees them.

    Args:
        entries: The tools that the session holds, sorted by name.
    """

    def __init__(self, entries: Iterable[ToolEntry]) -> None:
        self._entries = list(entries)
        self.names = tuple(entry.name for entry in self._entries)
        """Those that its model is offered."""
        self._kept: tuple[str, Collection[str], tuple[ToolSpec, ...]] = ("", (), ())

    def specs(self, model: str, gone: frozenset[str] = frozenset()) -> tuple[ToolSpec, ...]:
        """Return the tools in the dialect of a model, without some; the last answer is kept.

        Linear in the number of tools.
        """
        kept_model, kept_gone, specs = self._kept
        if not specs or (kept_model, kept_gone) != (model, gone):
            dialect = dialect_for_model(model)
            specs = tuple(
                ToolSpec(entry.name, self._description(entry, gone), entry.compiled.shown_in(dialect).schema)
                for entry in self._entries
                if entry.name not in gone
            )
            self._kept = (model, gone, specs)
        return specs

    def _description(self, entry: ToolEntry, gone: frozenset[str]) -> str:
        if not _takes_text(entry):
            return entry.tool.description
        callable_ = [
            (each.name, each.compiled.schema)
            for each in sorted(self._entries, key=_usefulness)
            if each.name not in gone and not _takes_text(each)
        ]
        return with_functions(entry.tool.description, callable_, STARTS_CHILDREN, IN_SCHEMAS)


def _takes_text(entry: ToolEntry) -> bool:
    """Whether a call brings the text of its program, so that no program calls it."""
    return isinstance(entry.tool, ProgramTool) and not isinstance(entry.tool, SavedProgram)


def _usefulness(entry: ToolEntry) -> tuple[int, int, str]:
    """Return a tool's place in a list for programs: what they need most, the owner's own tools, the rest."""
    if entry.name in FIRST:
        return 0, FIRST.index(entry.name), entry.name
    if entry.name not in _PLACES:
        return 1, 0, entry.name
    return 2, _PLACES[entry.name], entry.name
