"""The live objects that a tree needs besides its configuration, such as tools; no journal can hold them.

The program packs them. Each process of the runtime that needs them fetches them and keeps them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from sessiontree.contracts.errors import SessionTreeError, describe_error
from sessiontree.contracts.handles.runtime_control import OwnerConfiguration
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.hooks import Hook
from sessiontree.contracts.tools.skills import Skill
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.mcp.server_tools import GivenServer
from sessiontree.models.port import GatewayModel, InProcessModel, Model
from sessiontree.policy.settings import PolicyConfig
from sessiontree.web.settings import WebSettings


@dataclass(frozen=True, slots=True)
class TreeResources:
    """Tools, agents and models of one tree; given again on resume."""

    table: ToolTable
    agents: Mapping[str, AgentConfig]
    instant: Mapping[str, InProcessModel]
    """By agent and summary key: what answers for its sessions where they run."""
    waiting: Mapping[str, GatewayModel]
    """By agent and summary key: what answers for its sessions and is asked by the gateway."""
    web: WebSettings | None
    """None = its sessions can't read the web."""
    policy: PolicyConfig
    """The owner's policy for tools; after a resume, the journal's."""
    group: str
    """Group of Main's channel."""
    hooks: tuple[Hook, ...]
    """The tree's hooks, in the order given."""
    skills: Mapping[str, Skill]
    """The owner's skills by name."""
    hidden: tuple[Path, ...] = ()
    """Folders in the workspace that no session may read or write, besides the runtime's own."""
    configuration: OwnerConfiguration | None = None
    """The owner's configuration, for the tool that changes it; None = the tree was opened without one."""
    servers: tuple[GivenServer, ...] = ()
    """The MCP servers of its tools, which the supervisor connects to."""

    @classmethod
    def of(  # noqa: PLR0913 - one value for each thing it holds
        cls,
        table: ToolTable,
        agents: Mapping[str, AgentConfig],
        models: Mapping[str, Model],
        *,
        web: WebSettings | None,
        policy: PolicyConfig,
        group: str,
        hooks: tuple[Hook, ...],
        skills: Mapping[str, Skill],
        hidden: tuple[Path, ...] = (),
        configuration: OwnerConfiguration | None = None,
        servers: tuple[GivenServer, ...] = (),
    ) -> TreeResources:
        """Return the setup for models of either sort, by the agents and summary keys they answer for."""
        instant: dict[str, InProcessModel] = {}
        waiting: dict[str, GatewayModel] = {}
        for agent, model in models.items():
            answering: dict[str, Any] = instant if callable(getattr(model, "reply", None)) else waiting
            answering[agent] = model
        return cls(
            table, agents, instant, waiting, web, policy, group, hooks, skills, hidden, configuration, servers
        )

    def replace_policy(self, policy: PolicyConfig, group: str) -> TreeResources:
        """Return the setup of the same tree under a journaled policy."""
        return replace(self, policy=policy, group=group)


@dataclass(frozen=True, slots=True)
class PackedResources:
    """One tree's live objects, packed: those for hosts, and those for the gateway alone."""

    for_hosts: bytes
    for_gateway: bytes | None
    """None where all models of the tree are instant and run in the hosts."""
    places: bytes | None = None
    """The nodes on which its hosts may run, as the engine packs them; None = this node alone."""
    keys: tuple[str, ...] = ()
    """Where each key of its models is on every machine, such as ``env:VARIABLE``; an empty text stands for a
    key that the program alone holds."""
    servers: tuple[GivenServer, ...] = ()
    """The MCP servers that its sessions may call."""
    libraries: tuple[str, ...] = ()
    """What the gateway's models load before their first question, each as ``module:name``."""


T = TypeVar("T")


MAX_TREES = 64


_LET_GO = LookupError("newer trees have displaced them in this process; try again")


class ResourceCache(Generic[T]):
    """The equipment of the latest trees by its name; a tree that is opened again has another name.

    Args:
        fetch: Returns packed equipment by its name.
        unpack: Unpacks it.
    """

    def __init__(self, fetch: Callable[[str], Awaitable[bytes]], unpack: Callable[[bytes], T]) -> None:
        self._fetch = fetch
        self._unpack = unpack
        self._held: OrderedDict[str, T | Exception] = OrderedDict()

    def of(self, name: str) -> T:
        """Return the equipment of a name.

        Raises:
            SessionTreeError: it could not be fetched or unpacked here.
        """
        held = self._held.get(name, _LET_GO)
        if isinstance(held, Exception):
            raise SessionTreeError(
                f"the tools and models of {name!r} can't be loaded in this process: {describe_error(held)}"
            ) from held
        return held

    async def fetch(self, names: Iterable[str]) -> None:
        """Fetch the equipment of these names; a failure is raised when the equipment is used.

        Use it at once when this returns: only until then is all of it certain to be held.
        """
        needed = dict.fromkeys(names)
        for name in needed:
            if isinstance(self._held.get(name), Exception):
                # Every session of the failed delivery has used it by now, and this delivery is a new attempt.
                del self._held[name]
        while missing := [name for name in needed if name not in self._held]:
            # Meanwhile another call may fetch equipment and displace what was held.
            for name in missing:
                self._held[name] = await self._try_fetch(name)
        for name in needed:
            self._held.move_to_end(name)
        while len(self._held) > max(MAX_TREES, len(needed)):
            self._held.popitem(last=False)

    async def _try_fetch(self, name: str) -> T | Exception:
        try:
            return self._unpack(await self._fetch(name))
        except Exception as error:  # noqa: BLE001 - unpacking runs the program's own code; its session gets the error
            return error
