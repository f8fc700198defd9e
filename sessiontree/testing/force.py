"""Forcing a tool on sessions that may not hold it, or past its facades: rights hold without any check.

The runtime has no code for this: a tree gets another table of tools before it opens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.runtime.rights.session_rights import _BEHIND
from sessiontree.runtime.supervisor.tree_resources import TreeResources


class Tree(Protocol):
    """The private parts of a :class:`~sessiontree.SessionTree` that are used here."""

    _setup: TreeResources

    @property
    def _desk(self) -> object | None: ...


class ForcedTable(ToolTable):
    """A table that hands tools to sessions against every rule: kind, agent, parent and spec.

    Args:
        table: The tree's own table.
        forced: Kind to the names of the tools that all its sessions hold besides.
    """

    def __init__(self, table: ToolTable, forced: Mapping[SessionKind, frozenset[str]]) -> None:
        super().__init__((entry.tool for entry in table), table.plugins)
        self.forced = dict(forced)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel with what is forced."""
        return type(self), (ToolTable((entry.tool for entry in self), self.plugins), self.forced)

    def select_held(self, kind: SessionKind, names: Iterable[str]) -> frozenset[str]:
        """Return what the rules give and what is forced."""
        return super().select_held(kind, names) | self.forced.get(kind, frozenset())


def unwrapped(handle: object) -> Any:
    """Return the object behind a handle that a tool got, as intrusive code would find it.

    Raises:
        KeyError: the session was released, or the handle is not a facade.
    """
    return _BEHIND[handle]


def force_register(tree: Tree, tool_name: str, kind: SessionKind) -> None:
    """Make every session of a kind hold a tool, regardless of kind, agent, parent and spec.

    The tool gets no additional rights: it gets the session's own context and no other handle.

    Args:
        tree: A tree that is not open yet; its hosts are given their tools when it opens.
        tool_name: Name of one of the tree's tools.
        kind: Whose sessions hold it from the start.

    Raises:
        ConfigError: the tree is open already, or has no tool of that name.
    """
    if tree._desk is not None:  # noqa: SLF001 - a seam for forcing reaches behind the front on purpose
        raise ConfigError("the tree is open: force tools on it before its sessions hold any")
    setup = tree._setup  # noqa: SLF001 - as above
    entry = setup.table.get(tool_name)
    if entry is None:
        raise ConfigError(f"no tool of the tree is called {tool_name!r}; give it with tools=…")
    forced = setup.table.forced if isinstance(setup.table, ForcedTable) else {}
    held = forced.get(kind, frozenset()) | {entry.name}
    tree._setup = replace(setup, table=ForcedTable(setup.table, {**forced, kind: held}))  # noqa: SLF001 - as above
