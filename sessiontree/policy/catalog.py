"""The one table of tools: every tool this house has or the specification names, those to come included.

A tool that is ready declares the same in its class; a test compares them. Source: seed 001, sections 2 and 3
(sections, profiles, groups); seed 004, tool availability; seed 000, section 10 (flags); seed 002, section 9.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from sessiontree.contracts.flags import ToolFlag
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import ALL_KINDS, MAIN_AND_BRANCH
from sessiontree.policy.row import CatalogRow

Profile: TypeAlias = Literal["minimal", "coding", "messaging", "full"]
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
"""The specification's sections and what people call them."""

_READ, _WORKSPACE = PermissionTier.READ_ONLY, PermissionTier.WORKSPACE
_SYSTEM, _ELEVATED = PermissionTier.SYSTEM, PermissionTier.ELEVATED
_INSIDE = (ToolFlag.WORKSPACE_ONLY,)
_OWNERS = (ToolFlag.OWNER_ONLY,)
_OUTSIDE_OPENCLAW = ("fs", "runtime", "landing")


def _row(  # noqa: PLR0913 - one value for each column
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
    )


CATALOG: Final[tuple[CatalogRow, ...]] = (
    _row("read", "Read file", "fs", _READ, "reader", "coding", kinds=ALL_KINDS, flags=_INSIDE),
    _row("write", "Write file", "fs", _WORKSPACE, "writer", "coding", flags=_INSIDE),
    _row("edit", "Edit file", "fs", _WORKSPACE, "reader writer", "coding", flags=_INSIDE),
    _row(
        "apply_patch", "Apply patch", "fs", _WORKSPACE, "reader writer", "coding", flags=_INSIDE, to_come=True
    ),
    _row("find", "Find files", "fs", _READ, "reader", "coding", kinds=ALL_KINDS, flags=_INSIDE),
    _row("grep", "Search files", "fs", _READ, "reader", "coding", kinds=ALL_KINDS, flags=_INSIDE),
    _row("exec", "Run command", "runtime", _SYSTEM, "shell", "coding", aliases=("bash", "shell")),
    _row("process", "Running commands", "runtime", _SYSTEM, "shell", "coding", to_come=True),
    _row("web_search", "Search the web", "web", _READ, "web", kinds=ALL_KINDS),
    _row("web_fetch", "Fetch page", "web", _READ, "web", kinds=ALL_KINDS),
    _row("memory_search", "Search memory", "memory", _READ, "memory", "coding", kinds=ALL_KINDS),
    _row("memory_get", "Show memory", "memory", _READ, "memory", "coding", kinds=ALL_KINDS),
    _row("memory_store", "Remember", "memory", _WORKSPACE, "memory_writer"),
    _row("memory_forget", "Forget", "memory", _ELEVATED, "memory_writer"),
    _row("sessions_list", "List sessions", "sessions", _READ, "", "coding messaging", to_come=True),
    _row("sessions_history", "Read session", "sessions", _READ, "", "coding messaging", to_come=True),
    _row(
        "sessions_send", "Write to session", "sessions", _WORKSPACE, "sessions", "coding messaging",
        to_come=True,
    ),
    _row("sessions_spawn", "Start session", "sessions", _WORKSPACE, "sessions", "coding"),
    _row("subagents", "Children", "sessions", _WORKSPACE, "sessions", "coding", to_come=True),
    _row(
        "session_status", "Session status", "sessions", _READ, "", "minimal coding messaging", kinds=ALL_KINDS
    ),
    _row("browser", "Browser", "ui", _SYSTEM, "web", to_come=True),
    _row("canvas", "Canvas", "ui", _SYSTEM, "channel", to_come=True),
    _row("message", "Send message", "messaging", _SYSTEM, "channel", "messaging"),
    _row("cron", "Timed jobs", "automation", _SYSTEM, "sessions", flags=_OWNERS, to_come=True),
    _row("gateway", "Runtime's own settings", "automation", _ELEVATED, flags=_OWNERS, to_come=True),
    _row("nodes", "Devices", "nodes", _ELEVATED, to_come=True),
    _row("agents_list", "List agents", "agents", _READ, to_come=True),
    _row("image", "Look at image", "media", _READ, "reader", "coding", to_come=True),
    _row("tts", "Speak", "media", _WORKSPACE, "writer", to_come=True),
    _row("write_html", "Write page", "landing", _WORKSPACE, "writer", flags=_INSIDE, to_come=True),
    _row("preview_screenshot", "Picture of page", "landing", _SYSTEM, "reader web", to_come=True),
    _row("validate_page", "Check page", "landing", _READ, "reader", flags=_INSIDE, to_come=True),
    _row("deploy_preview", "Publish preview", "landing", _SYSTEM, "reader web", to_come=True),
)  # fmt: skip
"""By section, in the specification's order; names are unique, aliases too. No tier is below what a row's
capabilities do; tools to come that only look at sessions will be given a handle that only looks."""
