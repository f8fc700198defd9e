"""The shell of an embodied session, confined here or in its agent's container, and what speaks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sessiontree.contracts.skills import Skill
from sessiontree.contracts.speech import Speech, SpeechRequest
from sessiontree.protected import OwnPlaces
from sessiontree.runtime.frames import Adopt
from sessiontree.runtime.session_rights import HostWeb, Link
from sessiontree.sandbox import CommandShell, ContainerShell, SessionTurns, speak_confined
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


@dataclass(frozen=True, slots=True)
class SessionSpeech:
    """Speaks for one session while it is embodied here."""

    link: Link
    web: HostWeb | None
    workspace: Path
    hidden: tuple[Path, ...]

    async def speak(self, wanted: SpeechRequest) -> Speech:
        """Return the audio file of a text."""
        self.link.services()
        if self.web is not None and self.web.has_speech:
            return await self.web.speak(wanted)
        return await speak_confined(wanted, self.workspace, self.hidden)
