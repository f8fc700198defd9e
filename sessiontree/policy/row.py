"""A row of the table of tools: what decides who may hold one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sessiontree.contracts.flags import ToolFlag
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import Tool


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """One tool, as lists and kinds judge it."""

    name: str
    label: str
    section: str
    """Its group: ``group:<section>`` stands for all tools of a section."""
    tier: PermissionTier
    """What every call needs at least."""
    kinds: frozenset[SessionKind]
    capabilities: frozenset[str] = frozenset()
    """Names of the handles it cannot work without."""
    profiles: frozenset[str] = frozenset()
    """Profiles that include it; ``full`` includes every tool."""
    flags: frozenset[ToolFlag] = frozenset()
    aliases: tuple[str, ...] = ()
    plugin: str = ""
    """Who brings it along; empty = this house, or the program."""
    in_openclaw: bool = False
    """Whether it belongs to ``group:openclaw``."""
    is_ready: bool = True
    """False: named by the specification, still to come."""
    optional_capabilities: frozenset[str] = frozenset()
    """Names of the handles it uses where the session has them."""

    @property
    def declared(self) -> frozenset[str]:
        """Names of all handles it may be given."""
        return self.capabilities | self.optional_capabilities

    def to_json(self) -> dict[str, Any]:
        """Return the row for a program; lists are sorted, kinds stand in their own order."""
        return {
            "name": self.name,
            "label": self.label,
            "section": self.section,
            "tier": self.tier.label,
            "kinds": [str(kind) for kind in SessionKind if kind in self.kinds],
            "capabilities": sorted(self.capabilities),
            "optional_capabilities": sorted(self.optional_capabilities),
            "profiles": sorted(self.profiles),
            "flags": sorted(self.flags),
            "aliases": list(self.aliases),
            "plugin": self.plugin,
            "in_openclaw": self.in_openclaw,
            "is_ready": self.is_ready,
        }


def row_of(tool: Tool[Any], *, plugin: str = "", in_openclaw: bool = False) -> CatalogRow:
    """Return the row a tool's class declares; a plugin puts its tools into no profile."""
    return CatalogRow(
        name=tool.name,
        label=tool.label or tool.name,
        section=tool.section,
        tier=tool.tier,
        kinds=frozenset(tool.kinds),
        capabilities=frozenset(tool.capabilities),
        profiles=frozenset() if plugin else frozenset(tool.profiles),
        flags=frozenset(ToolFlag(flag) for flag in tool.flags),
        aliases=tuple(tool.aliases),
        plugin=plugin,
        in_openclaw=in_openclaw,
        optional_capabilities=frozenset(tool.optional_capabilities),
    )
