"""The shell of an embodied session: confined on this machine, or in the container of its agent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from sessiontree.contracts.skills import Skill
from sessiontree.protected import OwnPlaces
from sessiontree.runtime.frames import Adopt
from sessiontree.runtime.session_rights import Link
from sessiontree.sandbox import CommandShell, ContainerShell, SessionTurns
from sessiontree.workspace import WorkspaceWriter

SessionShell: TypeAlias = "CommandShell | ContainerShell"


def session_shell(
    adopt: Adopt,
    writer: WorkspaceWriter,
    link: Link,
    turns: SessionTurns,
    *,
    hidden: tuple[Path, ...],
    own: OwnPlaces,
    skills: Mapping[str, Skill],
) -> SessionShell:
    """Return the shell of a session.

    Args:
        adopt: Which session, and its agent.
        writer: Changes its workspace.
        link: Leads to the supervisor, which keeps containers.
        turns: The turns of its commands.
        hidden: Places that no confined command sees.
        own: Where processes of the runtime import from.
        skills: What confined commands see of the owner's skills.
    """
    root = Path(writer.root)
    config = adopt.config
    if config.sandbox is not None:
        return ContainerShell(
            config.sandbox,
            root,
            lambda protected: link.services().container(link.grant, protected),
            (writer.reader(), writer),
            own=own,
            access=config.workspace_access,
            cleanup_s=config.exec_cleanup_s,
            turns=turns,
        )
    return CommandShell(
        root,
        hidden=hidden,
        own=own,
        security=config.exec_security,
        access=config.workspace_access,
        cleanup_s=config.exec_cleanup_s,
        skills=skills,
        turns=turns,
    )
