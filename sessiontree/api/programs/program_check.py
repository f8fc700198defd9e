"""Whether a saved program fits an agent: the tools that it needs, their tiers, and its types."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sessiontree.api.agents.agents import AgentSpec, add_agent_policies
from sessiontree.api.agents.approval_modes import Call, Outcome, decide_outcome, restrict_agents
from sessiontree.api.configuration.configuration import Configuration
from sessiontree.api.configuration.plugins import load_installed_tools
from sessiontree.api.options.options import build_plugin_context, load_plugin_settings
from sessiontree.api.programs.program_files import load_programs
from sessiontree.api.runtime.paths import get_default_state_dir
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.approvals import ApprovalMode
from sessiontree.contracts.recorded.programs import STARTS_CHILDREN
from sessiontree.contracts.settings.settings import suggest_names
from sessiontree.contracts.tools.program_tool import SavedProgram, SavedText
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.policy.compiled import CompiledPolicy, compile_policy
from sessiontree.policy.steps import Standing
from sessiontree.programs.interpreter_process import InterpreterEndedError, InterpreterProcess
from sessiontree.programs.orders import order_opening
from sessiontree.programs.signatures import build_face
from sessiontree.runtime.rights.session_rights import make_tool_standing

NOTHING_ELSE: Final = "\n\nNone\n"
"""What follows a text that is checked and not run: its top level only declares."""
CHECK_S: Final = 60.0
"""How long the type checker may take."""


@dataclass(frozen=True, slots=True)
class NeededTool:
    """A tool that a saved program needs, as an agent's session sees it."""

    name: str
    tier: str
    """Name of its minimum tier; a call may be of a higher one. Empty = no tool has the name."""
    approval: Outcome | None
    """What happens to its calls of that tier; None = the session does not hold it."""
    why_not: str
    """Why the session does not hold it; empty = it does."""


@dataclass(frozen=True, slots=True)
class ProgramFit:
    """Whether a saved program fits an agent."""

    agent: str
    kind: SessionKind
    tools: tuple[NeededTool, ...]
    unknown_agents: tuple[str, ...]
    faults: str
    """What the type checker found; empty = nothing."""
    offer: str
    """Whether sessions of the agent hold the program's own tool, and else why not."""

    @property
    def fits(self) -> bool:
        """Whether it can run there."""
        return not (self.unknown_agents or self.faults or any(each.why_not for each in self.tools))


async def check_program(
    saved: SavedText,
    configured: Configuration,
    agent: str,
    kind: SessionKind,
    root: Path,
    approvals: ApprovalMode | None = None,
) -> ProgramFit:
    """Return whether a saved program fits the sessions of an agent; nothing of it is run.

    Args:
        saved: The program.
        configured: The owner's configuration.
        agent: The agent's name.
        kind: The kind of its session.
        root: The workspace.
        approvals: The approval mode; None = as configured.

    Raises:
        ConfigError: no agent has the name, or the configuration can't be used.
        ConfinementUnavailable: the interpreter is missing here.
        ExecutionError: the type checker failed.
    """
    options = configured.tree_options(agent=agent, approvals=approvals)
    agents: dict[str, AgentSpec] = {"default": AgentSpec(), **options["agents"]}
    mode: ApprovalMode | None = options.get("approvals")
    owners = add_agent_policies(options["policy"], agents)
    spec = restrict_agents(agents, owners, "", mode)[agent]
    table = _build_table(saved, options.get("programs"), agents, root)
    named = frozenset(spec.tools or ())
    model = str(spec.config.model)
    standing = make_tool_standing(kind, agent, model, "", named=named)
    judge = compile_policy(table.rows, owners.model_copy(update={"strict": False}))
    held = table.select_held(kind, judge.decide(standing).kept)
    if spec.tools is not None:
        held &= named
    needed = tuple(_check_need(name, table, held, judge, standing, mode) for name in saved.tools)
    schemas = {
        entry.name: entry.compiled.schema
        for entry in table
        if entry.name in held and entry.name in saved.tools
    }
    offer = "" if saved.name in held else str(judge.explain(saved.name, standing))
    unknown = tuple(name for name in saved.agents if name not in agents)
    return ProgramFit(agent, kind, needed, unknown, await _find_faults(saved, schemas), offer)


def _build_table(
    saved: SavedText, folder: Path | None, agents: Mapping[str, AgentSpec], root: Path
) -> ToolTable:
    """Return all tools of a tree of this owner, with the program that is checked."""
    context = build_plugin_context(root, list(agents), None, "", get_default_state_dir(root))
    found = load_installed_tools(context, load_plugin_settings(None))
    others = [each for each in load_programs(folder, root) if each.name != saved.name] if folder else []
    brought = {each.tool.name: each.plugin for each in found if each.plugin}
    return ToolTable((*(each.tool for each in found), *others, SavedProgram(saved)), brought)


def _check_need(
    name: str,
    table: ToolTable,
    held: frozenset[str],
    judge: CompiledPolicy,
    standing: Standing,
    mode: ApprovalMode | None,
) -> NeededTool:
    entry = table.get(name)
    if entry is None or entry.name != name:
        known = [each.name for each in table]
        return NeededTool(name, "", None, f"no tool is named {name!r}; {suggest_names(name, known)}")
    tier = entry.row.tier
    if name not in held:
        found = judge.explain(name, standing)
        agents_list = f"the tools of agent {standing.agent!r}, or the kind {standing.kind}, leave it out"
        return NeededTool(name, tier.label, None, str(found) if found.removal is not None else agents_list)
    return NeededTool(name, tier.label, decide_outcome(mode, _CALLS[tier], with_person=True), "")


_CALLS: Final[Mapping[PermissionTier, Call]] = {
    PermissionTier.READ_ONLY: "ReadOnly",
    PermissionTier.WORKSPACE: "Workspace",
    PermissionTier.SYSTEM: "System, other",
    PermissionTier.ELEVATED: "Elevated",
}


async def _find_faults(saved: SavedText, schemas: Mapping[str, Any]) -> str:
    """Return what the type checker finds with the functions of these tools, and of no others."""
    face = build_face(schemas, STARTS_CHILDREN)
    process = InterpreterProcess()
    try:
        await process.start()
        order = order_opening(saved.text + NOTHING_ELSE, face, seed=saved.name)
        async with asyncio.timeout(CHECK_S):
            told = await process.ask(saved.name, order)
    except (InterpreterEndedError, TimeoutError) as error:
        raise ExecutionError(f"the type checker failed on {saved.path}: {error}") from error
    finally:
        process.end()
        await process.ended()
    return str(told.get("reason", "")).replace("program.py:", f"{Path(saved.path).name}:").strip()
