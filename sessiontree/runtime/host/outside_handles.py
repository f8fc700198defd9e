"""What an embodied session reaches outside its tree: the web, requests that change something, speech, nodes.

Each handle ends with its session's link to the supervisor.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from sessiontree.browser.tunnels import Network
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.http_requests import HttpRequest, HttpResponse, HttpSender
from sessiontree.contracts.handles.nodes import NodeInfo, Nodes
from sessiontree.contracts.handles.ports import Page, SearchHit, SearchQuery, Web
from sessiontree.contracts.handles.runtime_control import (
    NO_CONFIGURATION,
    ConfigurationChange,
    OwnerConfiguration,
    RestartReport,
    RuntimeStatus,
    StoredConfiguration,
)
from sessiontree.contracts.handles.speech import Speech, SpeechRequest, SpeechSynthesizer
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.rights.session_rights import Link
from sessiontree.sandbox import JobShell, UnconfinedShell, find_speech_program, speak_confined
from sessiontree.sandbox.commands.running_commands import RunningCommands


class HostWeb(Web, HttpSender, Network, SpeechSynthesizer, Protocol):
    """Web access as a host has it."""

    @property
    def has_search(self) -> bool:
        """Whether the owner configured a search provider."""
        ...

    @property
    def has_speech(self) -> bool:
        """Whether the owner configured a speech service."""
        ...


@dataclass(frozen=True, slots=True)
class WebHandle:
    """Reads the web for the session while it is embodied here."""

    link: Link
    web: Web

    async def get(self, url: str, *, max_bytes: int | None = None, accept: str = "*/*") -> Page:
        """Return the page that a GET of an address leads to."""
        self.link.get_services()
        return await self.web.get(url, max_bytes=max_bytes, accept=accept)

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits of the owner's search provider."""
        self.link.get_services()
        return await self.web.search(query)


@dataclass(frozen=True, slots=True)
class HttpHandle:
    """Sends HTTP requests for the session while it is embodied here."""

    link: Link
    sender: HttpSender

    async def request(self, wanted: HttpRequest) -> HttpResponse:
        """Send one request and return the response."""
        self.link.get_services()
        return await self.sender.request(wanted)


@dataclass(frozen=True, slots=True)
class SessionSpeech:
    """Speaks for one session while it is embodied here."""

    link: Link
    web: HostWeb | None
    workspace: Path
    hidden: tuple[Path, ...]

    async def speak(self, wanted: SpeechRequest) -> Speech:
        """Return the audio file of a text."""
        self.link.get_services()
        if self.web is not None and self.web.has_speech:
            return await self.web.speak(wanted)
        return await speak_confined(wanted, self.workspace, self.hidden)


def can_speak(web: HostWeb | None) -> bool:
    """Return whether a session here has what speaks: the owner's service, or espeak-ng."""
    return (web is not None and web.has_speech) or find_speech_program() is not None


LOCAL_NODE = "local"
"""Id of the only node of the local backend."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """The machine of the local backend."""

    async def nodes(self) -> tuple[NodeInfo, ...]:
        """Return this machine."""
        return (
            NodeInfo(
                LOCAL_NODE,
                platform.node() or LOCAL_NODE,
                is_alive=True,
                is_here=True,
                cpus=float(len(os.sched_getaffinity(0))),
                memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
                resources={},
                labels={},
            ),
        )

    def open_shell(self, node: NodeInfo, workspace: Path, running: RunningCommands) -> JobShell:
        """Return what runs commands on this machine."""
        return UnconfinedShell(workspace, running, place=f"on node {node.name}, in the workspace")


@dataclass(frozen=True, slots=True)
class SessionNodes:
    """The nodes, for one session while it is embodied here."""

    link: Link
    known: Nodes

    async def nodes(self) -> tuple[NodeInfo, ...]:
        """Return the nodes, those alive first, by name and id."""
        self.link.get_services()
        found = await self.known.nodes()
        return tuple(sorted(found, key=lambda node: (not node.is_alive, node.name, node.node_id)))


@dataclass(frozen=True, slots=True)
class SessionRuntime:
    """The runtime, for one session while it is embodied here."""

    link: Link
    backend: Literal["local", "ray"]
    open_configuration: Callable[[], OwnerConfiguration] | None

    async def status(self) -> RuntimeStatus:
        """Return what the runtime does."""
        return await self.link.get_services().report_runtime_status(self.link.grant)

    async def restart(self) -> RestartReport:
        """Replace the hosts."""
        return await self.link.get_services().replace_hosts(self.link.grant)

    async def read_configuration(self) -> StoredConfiguration:
        """Return the owner's configuration."""
        return await self._require_configuration().read()

    async def configuration_schema(self) -> Mapping[str, JsonValue]:
        """Return the JSON Schema of the owner's configuration."""
        return await self._require_configuration().schema()

    async def patch_configuration(
        self, base_sha256: str, patch: Mapping[str, JsonValue]
    ) -> ConfigurationChange:
        """Apply a JSON merge patch to the owner's configuration."""
        return await self._require_configuration().patch(base_sha256, patch)

    def _require_configuration(self) -> OwnerConfiguration:
        """Return what reads and changes the file; no tool holds it, because it has the file's path."""
        self.link.get_services()
        if self.open_configuration is None:
            raise ExecutionError(NO_CONFIGURATION)
        return self.open_configuration()
