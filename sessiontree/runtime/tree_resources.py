"""What a tree needs besides its configuration: live objects that no journal can hold."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.hooks import Hook
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.models.port import GatewayModel, InstantModel, Model, name_of
from sessiontree.policy.settings import PolicyConfig
from sessiontree.web.settings import WebSettings


@dataclass(frozen=True, slots=True)
class TreeSetup:
    """Tools, agents and model of one tree; given again on resume."""

    table: ToolTable
    agents: Mapping[str, AgentConfig]
    instant: InstantModel | None
    waiting: GatewayModel | None
    web: WebSettings | None
    """None: its sessions read nothing of the web."""
    policy: PolicyConfig
    """What the tree's owner says about tools; on resume the journal's."""
    group: str
    """Group of Main's channel."""
    model_name: str
    """Of the model as it is given now."""
    hooks: tuple[Hook, ...]
    """What stands around every call, in the order given."""

    @classmethod
    def of(
        cls,
        table: ToolTable,
        agents: Mapping[str, AgentConfig],
        model: Model,
        *,
        web: WebSettings | None,
        policy: PolicyConfig,
        group: str,
        hooks: tuple[Hook, ...],
    ) -> TreeSetup:
        """Return the setup for a model of either sort.

        Raises:
            ConfigError: the object is no model, or the web's settings are none.
        """
        instant: InstantModel | None = None
        waiting: GatewayModel | None = None
        if isinstance(model, type):
            raise ConfigError(f"model: {model.__name__} is a class; give an instance of it")
        if callable(getattr(model, "reply", None)):
            instant = model  # type: ignore[assignment]
        elif callable(getattr(model, "stream", None)) or callable(getattr(model, "complete", None)):
            waiting = model  # type: ignore[assignment]
        else:
            raise ConfigError(f"model: {_what_to_give(model)}")
        if web is not None and not isinstance(web, WebSettings):
            raise ConfigError(f"web: give WebSettings, or None for no web at all, not {web!r}")
        return cls(table, agents, instant, waiting, web, policy, group, name_of(model), hooks)

    def under(self, policy: PolicyConfig, group: str) -> TreeSetup:
        """Return the setup of the same tree under a journaled policy."""
        return replace(self, policy=policy, group=group)


def _what_to_give(model: object) -> str:
    if isinstance(model, str):
        return (
            f"{model!r} is a name, no model, and this release brings no provider along; write a function "
            "that asks yours and give AsyncFunctionModel(f)"
        )
    if callable(model):
        wrapped = "FunctionModel"
        if inspect.iscoroutinefunction(model):
            wrapped = "AsyncFunctionModel"
        elif inspect.isasyncgenfunction(model):
            wrapped = "StreamFunctionModel"
        return f"{model!r} is a function; wrap it: {wrapped}(f)"
    return f"{model!r} is no model: it has neither reply (instant) nor complete (waiting) nor stream"


@dataclass(frozen=True, slots=True)
class Baggage:
    """One tree's live objects, packed: what hosts get, and what the gateway alone gets."""

    for_hosts: bytes
    for_gateway: bytes | None
    """None where the tree's model is instant and runs in the hosts."""
