"""The tool ``gateway``: an owner looks at the runtime, changes its settings, and has its hosts replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.handles.runtime_control import RuntimeControl
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import RUNTIME
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Stripped, Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue

HASH_CHARS = 64


class GatewayParams(BaseModel):
    """What to do, and how the configuration changes."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["status", "config.get", "config.schema", "config.patch", "restart"]
    section: Annotated[str, Stripped()] | None = Field(
        default=None, min_length=1, max_length=64, description="One member alone, for config.get and schema."
    )
    base_hash: Annotated[str, Stripped()] | None = Field(
        default=None,
        min_length=HASH_CHARS,
        max_length=HASH_CHARS,
        description="The hash of config.get; for config.patch.",
    )
    patch: dict[str, Any] | None = Field(
        default=None, description="JSON merge patch: null removes a member; for config.patch."
    )


class GatewayTool(Tool[GatewayParams]):
    """The runtime's own state and settings, for its owner."""

    name = "gateway"
    description = "Show the runtime, read or patch the owner's configuration, or replace the runtime's hosts."
    brief = True
    Params: ClassVar[type[BaseModel]] = GatewayParams
    label = "Runtime's own settings"
    section = "automation"
    flags = frozenset({ToolFlag.OWNER_ONLY, ToolFlag.OPTIONAL})
    tier = PermissionTier.ELEVATED
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"runtime"})
    param_aliases: ClassVar[Mapping[str, str]] = {"baseHash": "base_hash"}

    async def execute(self, params: GatewayParams, ctx: ToolContext) -> ToolResult:
        """Carry out the action.

        The output of ``status`` is ``{backend, version, trees, sessions, …, pools}``, of ``config.get``
        ``{exists, hash, config}``, of ``config.schema`` the schema, of ``config.patch`` ``{hash, changed,
        at_once, at_next_start}``, of ``restart`` ``{ended, retiring, dedicated}``.

        Raises:
            ValidationError: an argument is missing or of another action, the configuration has changed since
                the hash, or the patched one is not valid.
            ExecutionError: the tree was opened without a configuration, or its file can't be used.
        """
        # First, because an argument of another action is a mistake about what will happen, and not something
        # to ignore.
        _check_arguments(params)
        runtime = ctx.require(RUNTIME)
        match params.action:
            case "status":
                return await _show_status(runtime)
            case "config.get":
                return await _show_configuration(runtime, params.section)
            case "config.schema":
                return await _show_schema(runtime, params.section)
            case "config.patch":
                return await _patch(runtime, params)
            case "restart":
                return await _restart(runtime)
            case _:
                assert_never(params.action)


_ARGUMENTS: Mapping[str, frozenset[str]] = {
    "config.get": frozenset({"section"}),
    "config.schema": frozenset({"section"}),
    "config.patch": frozenset({"base_hash", "patch"}),
}


def _check_arguments(params: GatewayParams) -> None:
    given = {name for name in ("section", "base_hash", "patch") if getattr(params, name) is not None}
    for name in sorted(given - _ARGUMENTS.get(params.action, frozenset())):
        raise ValidationError(f"{params.action} takes no {name}; leave it out", f"/{name}")


async def _show_status(runtime: RuntimeControl) -> ToolResult:
    found = await runtime.status()
    output: dict[str, Any] = {"backend": runtime.backend, **asdict(found)}
    output["pools"] = [asdict(pool) for pool in found.pools]
    hosts = sum(pool.hosts for pool in found.pools)
    said = f"{found.trees} trees, {found.sessions} sessions, {hosts} hosts on {runtime.backend}"
    return ToolResult(output=output, display=said, details=output)


async def _show_configuration(runtime: RuntimeControl, section: str | None) -> ToolResult:
    found = await runtime.read_configuration()
    values: Mapping[str, JsonValue] = found.values
    if section is not None:
        values = {section: values[section]} if section in values else {}
    said = f"{len(found.values)} members are set" if found.is_there else "there is no file yet"
    output: dict[str, Any] = {"exists": found.is_there, "hash": found.sha256, "config": dict(values)}
    return ToolResult(output=output, display=f"configuration {found.sha256[:8]}: {said}")


async def _show_schema(runtime: RuntimeControl, section: str | None) -> ToolResult:
    schema = dict(await runtime.configuration_schema())
    if section is not None:
        members = schema.get("properties")
        if not isinstance(members, dict) or section not in members:
            known = ", ".join(sorted(members)) if isinstance(members, dict) else "none"
            raise ValidationError(f"no member is called {section!r}; there are {known}", "/section")
        schema = {"properties": {section: members[section]}, "$defs": schema.get("$defs", {})}
    return ToolResult(output=schema, display=f"schema of {section or 'the configuration'}")


async def _patch(runtime: RuntimeControl, params: GatewayParams) -> ToolResult:
    if params.base_hash is None:
        raise ValidationError("config.patch needs base_hash; config.get shows it", "/base_hash")
    if not params.patch:
        raise ValidationError("config.patch needs patch, an object with the members to change", "/patch")
    change = await runtime.patch_configuration(params.base_hash.lower(), params.patch)
    # Rights of a running tree come from its journal, so none of the members reaches it.
    output: dict[str, Any] = {
        "hash": change.sha256,
        "changed": list(change.changed),
        "at_once": [],
        "at_next_start": list(change.changed),
    }
    said = ", ".join(change.changed) or "nothing"
    return ToolResult(output=output, display=f"changed {said}; it applies to trees that start from now on")


async def _restart(runtime: RuntimeControl) -> ToolResult:
    report = asdict(await runtime.restart())
    said = f"{report['ended']} hosts ended, {report['retiring']} end once their sessions rest"
    return ToolResult(output=report, display=said)
