"""The table of tools: what a row contains, and a row for each tool of the package, including planned ones.

The class of a finished tool declares the same; a test compares them.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.tools.tool import ALL_KINDS, MAIN_AND_BRANCH, Tool, ToolFlag
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """One tool, as lists and kinds judge it."""

    name: str
    label: str
    section: str
    """Its group: ``group:<section>`` stands for all tools of a section."""
    tier: PermissionTier
    """The least that every call needs."""
    kinds: frozenset[SessionKind]
    capabilities: frozenset[str] = frozenset()
    """Names of the handles without which it cannot work."""
    profiles: frozenset[str] = frozenset()
    """Profiles that include it; ``full`` includes every tool."""
    flags: frozenset[ToolFlag] = frozenset()
    aliases: tuple[str, ...] = ()
    plugin: str = ""
    """The plugin that provides it; empty = this package, or the program."""
    in_openclaw: bool = False
    """Whether it belongs to ``group:openclaw``."""
    is_ready: bool = True
    """False: the specification names it, but it does not exist yet."""
    optional_capabilities: frozenset[str] = frozenset()
    """Names of the handles that it uses if the session has them."""

    @property
    def declared(self) -> frozenset[str]:
        """Names of all handles that it may be given."""
        return self.capabilities | self.optional_capabilities

    def to_json(self) -> dict[str, Any]:
        """Return the row for a program; lists are sorted, kinds are in their own order."""
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


def build_row(tool: Tool[Any], *, plugin: str = "", in_openclaw: bool = False) -> CatalogRow:
    """Return the row that a tool's class declares; tools of a plugin belong to no profile."""
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


Profile: TypeAlias = Literal["minimal", "coding", "messaging", "full"]
"""Names of the sets of tools from which a policy may begin."""
FULL: Final = "full"
"""The profile that includes every tool."""

SECTIONS: Final[dict[str, str]] = {
    "fs": "Files",
    "runtime": "Runtime",
    "web": "Web",
    "memory": "Memory",
    "sessions": "Sessions",
    "ui": "UI",
    "messaging": "Messaging",
    "automation": "Automation",
    "nodes": "Nodes",
    "agents": "Agents",
    "media": "Media",
}
"""The specification's sections, with their names for people."""

_READ, _WORKSPACE = PermissionTier.READ_ONLY, PermissionTier.WORKSPACE
_SYSTEM, _ELEVATED = PermissionTier.SYSTEM, PermissionTier.ELEVATED
_INSIDE = (ToolFlag.WORKSPACE_ONLY,)
_OWNERS = (ToolFlag.OWNER_ONLY,)
_NAMED = (ToolFlag.OPTIONAL,)
_NAMED_INSIDE = (ToolFlag.WORKSPACE_ONLY, ToolFlag.OPTIONAL)
_OUTSIDE_OPENCLAW = ("fs", "runtime", "network", "landing")


def _build_row(  # noqa: PLR0913 - one value for each column
    name: str,
    label: str,
    section: str,
    tier: PermissionTier,
    capabilities: str = "",
    profiles: str = "",
    *,
    kinds: frozenset[SessionKind] = MAIN_AND_BRANCH,
    flags: tuple[ToolFlag, ...] = (),
    aliases: tuple[str, ...] = (),
    optional: str = "",
    to_come: bool = False,
) -> CatalogRow:
    return CatalogRow(
        name=name,
        label=label,
        section=section,
        tier=tier,
        kinds=kinds,
        capabilities=frozenset(capabilities.split()),
        profiles=frozenset(profiles.split()),
        flags=frozenset(flags),
        aliases=aliases,
        in_openclaw=section not in _OUTSIDE_OPENCLAW,
        is_ready=not to_come,
        optional_capabilities=frozenset(optional.split()),
    )


CATALOG: Final[tuple[CatalogRow, ...]] = (
    _build_row("read", "Read file", "fs", _READ, "reader", "coding", kinds=ALL_KINDS, flags=_INSIDE),
    _build_row("write", "Write file", "fs", _WORKSPACE, "writer", "coding", flags=_INSIDE),
    _build_row("edit", "Edit file", "fs", _WORKSPACE, "reader writer", "coding", flags=_INSIDE),
    _build_row("apply_patch", "Apply patch", "fs", _WORKSPACE, "reader writer", "coding", flags=_INSIDE),
    _build_row(
        "child_workspace", "Child's workspace", "fs", _WORKSPACE, "reader writer child_workspaces", "coding",
        flags=_INSIDE,
    ),
    _build_row("find", "Find files", "fs", _READ, "reader", "coding", kinds=ALL_KINDS, flags=_INSIDE),
    _build_row("grep", "Search files", "fs", _READ, "reader", "coding", kinds=ALL_KINDS, flags=_INSIDE),
    _build_row("exec", "Run command", "runtime", _SYSTEM, "jobs", "coding", aliases=("bash", "shell")),
    _build_row("process", "Running commands", "runtime", _SYSTEM, "jobs", "coding"),
    _build_row("web_search", "Search the web", "web", _READ, "web", kinds=ALL_KINDS),
    _build_row("web_fetch", "Fetch page", "web", _READ, "web", kinds=ALL_KINDS),
    _build_row(
        "http_request", "Send request", "network", _SYSTEM, "http", flags=_NAMED, optional="reader writer"
    ),
    _build_row("memory_search", "Search memory", "memory", _READ, "memory", "coding", kinds=ALL_KINDS),
    _build_row("memory_get", "Show memory", "memory", _READ, "memory", "coding", kinds=ALL_KINDS),
    _build_row("memory_store", "Remember", "memory", _WORKSPACE, "memory_writer"),
    _build_row("memory_forget", "Forget", "memory", _ELEVATED, "memory_writer"),
    _build_row(
        "sessions_list", "List sessions", "sessions", _READ, "subtree", "coding messaging", flags=_NAMED
    ),
    _build_row(
        "sessions_history", "Read session", "sessions", _READ, "subtree", "coding messaging", flags=_NAMED,
    ),
    _build_row(
        "sessions_send", "Write to session", "sessions", _WORKSPACE, "sessions", "coding messaging",
        flags=_NAMED,
    ),
    _build_row("sessions_spawn", "Start session", "sessions", _WORKSPACE, "sessions", "coding"),
    _build_row("program", "Program", "sessions", _READ, "", "coding", kinds=ALL_KINDS, flags=_NAMED),
    _build_row("tool_search", "Search tools", "sessions", _READ, "", "coding", kinds=ALL_KINDS),
    _build_row("subagents", "Children", "sessions", _WORKSPACE, "sessions subtree", "coding"),
    _build_row(
        "session_status", "Session status", "sessions", _READ, "", "minimal coding messaging", kinds=ALL_KINDS
    ),
    _build_row("browser", "Browser", "ui", _SYSTEM, "browser web", flags=_NAMED, optional="reader writer"),
    _build_row("canvas", "Canvas", "ui", _SYSTEM, "canvas", flags=_NAMED, optional="reader web browser"),
    _build_row("message", "Send message", "messaging", _SYSTEM, "channel", "messaging"),
    _build_row("ask_user", "Ask the person", "messaging", _READ, "", "coding messaging", flags=_NAMED),
    _build_row(
        "cron", "Timed jobs", "automation", _SYSTEM, "cron", kinds=frozenset({SessionKind.MAIN}),
        flags=(*_OWNERS, *_NAMED),
    ),
    _build_row(
        "gateway", "Runtime's own settings", "automation", _ELEVATED, "runtime", flags=(*_OWNERS, *_NAMED)
    ),
    _build_row("nodes", "Devices", "nodes", _ELEVATED, "nodes", flags=_NAMED, optional="channel jobs"),
    _build_row("agents_list", "List agents", "agents", _READ, "subtree", flags=_NAMED),
    _build_row(
        "image", "Look at image", "media", _READ, "reader images", "coding", flags=_NAMED,
        optional="vision web",
    ),
    _build_row("tts", "Speak", "media", _WORKSPACE, "writer speech", flags=_NAMED),
    _build_row("write_html", "Write page", "landing", _WORKSPACE, "reader writer", flags=_NAMED_INSIDE),
    _build_row(
        "preview_screenshot", "Picture of page", "landing", _SYSTEM, "reader browser", flags=_NAMED_INSIDE,
        optional="writer",
    ),
    _build_row(
        "validate_page", "Check page", "landing", _SYSTEM, "reader browser", flags=_NAMED_INSIDE,
        optional="web",
    ),
    _build_row(
        "deploy_preview", "Publish preview", "landing", _SYSTEM, "reader previews", flags=_NAMED_INSIDE,
    ),
)  # fmt: skip
"""By section, in the specification's order; names and aliases are unique. No tier is lower than its row's
capabilities require."""
