"""The tools of one tree, compiled once and found by any of their names."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.tree_config import ToolRow
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.capabilities import SHELL, WRITER
from sessiontree.contracts.recorded.programs import ProgramSource
from sessiontree.contracts.tools.client_tool import ClientTool, is_question_tool
from sessiontree.contracts.tools.decorator import FunctionTool
from sessiontree.contracts.tools.program_tool import ProgramTool, SavedProgram, ToolFinder
from sessiontree.contracts.tools.tool import Tool, ToolFlag, check_tool
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.policy.catalog import CatalogRow, build_row
from sessiontree.policy.vocabulary import fold_name
from sessiontree.schema.compiled import CompiledTool, compile_tool
from sessiontree.schema.result import ResultSchema, compile_result, derive_result_schema


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """One tool with its compiled schema and its catalog row."""

    tool: Tool[Any]
    compiled: CompiledTool
    row: CatalogRow
    answers: ResultSchema | None = None
    """Checks the creating program's answers; None = any answer fits, or the program answers no call of it."""

    name: str = field(init=False)
    """The canonical name."""
    can_run_commands: bool = field(init=False)
    """Whether it takes a command, or may be given a shell."""

    def __post_init__(self) -> None:
        """Store what every call reads."""
        object.__setattr__(self, "name", self.tool.name)
        can_run = bool(self.tool.command_in) or SHELL.name in self.row.declared
        object.__setattr__(self, "can_run_commands", can_run)


class ToolTable:
    """Tools by name. Names and aliases are compared folded, as the owner's lists are.

    Args:
        tools: The tools.
        plugins: The plugin of each tool, by the tool's name; tools without a plugin are not in it.
        entries: More tools, compiled already; without plugins. Another table is only copied.

    Raises:
        ConfigError: a declaration is not valid, or two tools claim one name.
    """

    def __init__(
        self,
        tools: Iterable[Tool[Any]],
        plugins: Mapping[str, str] | None = None,
        entries: Iterable[ToolEntry] = (),
    ) -> None:
        self._plugins = dict(plugins or {})
        self._by_name: dict[str, ToolEntry] = {}
        self._by_spelling: dict[str, ToolEntry] = {}
        if isinstance(entries, ToolTable):
            self._by_name |= entries._by_name  # noqa: SLF001 - of its own class, as the next
            self._by_spelling |= entries._by_spelling  # noqa: SLF001
        else:
            for entry in entries:
                self._add(entry)
        for tool in tools:
            check_tool(tool)
            row = build_row(tool, plugin=self._plugins.get(tool.name, ""))
            self._add(ToolEntry(tool, compile_tool(tool), row, _compile_answers(tool)))
        self._entries = tuple(sorted(self._by_name.values(), key=attrgetter("name")))

    def _add(self, entry: ToolEntry) -> None:
        for spelling in (entry.name, *entry.tool.aliases):
            self._claim(spelling, entry)
        self._by_name[entry.name] = entry

    def _claim(self, spelling: str, entry: ToolEntry) -> None:
        other = self._by_spelling.setdefault(fold_name(spelling), entry)
        if other is not entry:
            places = [_describe_place(other.tool), _describe_place(entry.tool)]
            both = " and ".join(places) if places[0] != places[1] else f"both are {places[0]}"
            raise ConfigError(f"two tools are called {spelling!r}: {both}; rename one")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only tools and plugins; the table is compiled again when it is unpickled."""
        return type(self), ([entry.tool for entry in self], self._plugins)

    def __iter__(self) -> Iterator[ToolEntry]:
        """Iterate over the entries, sorted by name."""
        return iter(self._entries)

    @cached_property
    def rows(self) -> tuple[CatalogRow, ...]:
        """The tools as a policy judges them, sorted by name."""
        return tuple([entry.row for entry in self])

    @cached_property
    def journal_rows(self) -> tuple[ToolRow, ...]:
        """The tools as a tree's journal holds them, sorted by name."""
        return tuple(
            [
                ToolRow(
                    entry.name,
                    tuple(sorted(entry.tool.kinds)),
                    entry.compiled.digest,
                    entry.tool.command_in,
                    getattr(entry.tool, "declared", None),
                )
                for entry in self
            ]
        )

    @cached_property
    def for_owners(self) -> frozenset[str]:
        """Names of the tools that only owners may have called."""
        return frozenset(entry.name for entry in self if ToolFlag.OWNER_ONLY in entry.row.flags)

    @cached_property
    def for_writers(self) -> frozenset[str]:
        """Names of the tools that can't work without a writer."""
        return frozenset(entry.name for entry in self if WRITER.name in entry.tool.capabilities)

    @cached_property
    def for_client(self) -> frozenset[str]:
        """Names of the tools whose calls the creating program answers."""
        return frozenset(entry.name for entry in self if isinstance(entry.tool, ClientTool))

    @cached_property
    def for_programs(self) -> frozenset[str]:
        """Names of the tools whose calls are programs."""
        return frozenset(entry.name for entry in self if isinstance(entry.tool, ProgramTool))

    @cached_property
    def for_search(self) -> frozenset[str]:
        """Names of the tools that search the tools of their session."""
        return frozenset(entry.name for entry in self if isinstance(entry.tool, ToolFinder))

    @cached_property
    def for_texts(self) -> frozenset[str]:
        """Names of the tools whose calls bring the text of their program."""
        return frozenset(name for name in self.for_programs if self.source_of(name) is None)

    def source_of(self, name: str) -> ProgramSource | None:
        """Return the text of the saved program that a tool is; None = the tool is something else."""
        entry = self._by_name.get(name)
        return entry.tool.source if entry is not None and isinstance(entry.tool, SavedProgram) else None

    @cached_property
    def for_persons(self) -> frozenset[str]:
        """Names of the tools whose calls a person answers."""
        return frozenset(entry.name for entry in self if is_question_tool(entry.tool))

    @property
    def plugins(self) -> Mapping[str, str]:
        """The plugin of each tool, by the tool's name."""
        return self._plugins

    def get(self, name: str) -> ToolEntry | None:
        """Return the tool of a name or alias, in any case."""
        return self._by_name.get(name) or self._by_spelling.get(fold_name(name))

    def select_held(self, kind: SessionKind, names: Iterable[str]) -> frozenset[str]:
        """Return which of the named tools a session of a kind may hold."""
        entries = map(self._by_name.get, names)
        held = [entry.name for entry in entries if entry is not None and kind in entry.tool.kinds]
        return frozenset(held)


_ALREADY_MADE: Final[list[tuple[tuple[ToolEntry, ...], ToolTable]]] = []
"""The last entries of a table without other tools, and that table."""


def make_tool_table(
    tools: Sequence[Tool[Any]], plugins: Mapping[str, str], entries: Sequence[ToolEntry]
) -> ToolTable:
    """Return the table of a tree's tools: trees have nearly always the same entries, so those are kept.

    Args:
        tools: As for :class:`ToolTable`, like ``plugins`` and ``entries``.
        plugins: See there.
        entries: See there.

    Raises:
        ConfigError: as for :class:`ToolTable`.
    """
    usual = next((table for made, table in _ALREADY_MADE if _are_same(made, entries)), None)
    if usual is None:
        usual = ToolTable((), entries=entries)
        _ALREADY_MADE[:] = [(tuple(entries), usual)]
    return ToolTable(tools, plugins, usual) if tools or plugins else usual


def _are_same(some: Sequence[ToolEntry], others: Sequence[ToolEntry]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _compile_answers(tool: Tool[Any]) -> ResultSchema | None:
    if not isinstance(tool, ClientTool) or tool.result_type is None:
        return None
    wanted = tool.result_type
    try:
        return compile_result(wanted if isinstance(wanted, Mapping) else derive_result_schema(wanted))
    except ConfigError as error:
        raise ConfigError(f"tool {tool.name!r}: {error}") from error


def _describe_place(tool: Tool[Any]) -> str:
    """Return where a tool is defined: module, name, and file and line if they are known."""
    made: Any = inspect.unwrap(tool.function) if isinstance(tool, FunctionTool) else type(tool)
    named = f"{made.__module__}.{getattr(made, '__qualname__', type(made).__qualname__)}"
    code = getattr(made, "__code__", None)
    if code is not None:
        return f"{named} ({code.co_filename}:{code.co_firstlineno})"
    try:
        return f"{named} ({inspect.getsourcefile(made)}:{inspect.getsourcelines(made)[1]})"
    except (OSError, TypeError):  # it has no source
        return named
