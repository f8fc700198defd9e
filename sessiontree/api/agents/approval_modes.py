"""Approval modes: what a mode that somebody names makes of System calls, and how a mode is said to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from sessiontree.api.agents.agents import AgentSpec
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.kinds import SystemAnswer
from sessiontree.contracts.recorded.approvals import ApprovalMode
from sessiontree.policy.settings import PolicyConfig
from sessiontree.tree.rules.spawn import choose_strictest

MODES: Final[tuple[ApprovalMode, ...]] = get_args(ApprovalMode)
"""From the widest to the strictest."""
DEFAULT_MODE: Final[ApprovalMode] = "always"
"""The mode of a tree whose program names none; it governs Elevated calls alone."""
Call: TypeAlias = Literal["ReadOnly", "Workspace", "System, harmless", "System, other", "Elevated"]
"""A kind of call that modes treat alike; *harmless* = a command that is known to change nothing."""
CALLS: Final[tuple[Call, ...]] = get_args(Call)
Outcome: TypeAlias = Literal["runs", "asks", "refused", "approved"]
"""What happens to a call: it runs; a person is asked; it is refused; the mode approves and records it."""
_NOT_NAMED: Final = "not named"


def choose_mode(named: ApprovalMode | None) -> ApprovalMode:
    """Return a tree's mode; None = nobody names one."""
    return named or DEFAULT_MODE


def decide_system_calls(named: ApprovalMode | None) -> SystemAnswer:
    """Return what happens to System calls where nobody says it: a named mode governs them, too.

    ``auto`` would approve each of them, so they run without a request.
    """
    return "allow" if named is None or named == "auto" else "ask"


def restrict_agents(
    agents: Mapping[str, AgentSpec], policy: PolicyConfig, group: str, named: ApprovalMode | None
) -> dict[str, AgentSpec]:
    """Return agents whose System calls are judged as policy and mode say.

    The strictest of what the owner writes for an agent counts: in its own settings, and in the policy for
    all, for the agent and for the group. Where nothing is written, the named mode decides.
    """
    widely = [policy.system_tier] if "system_tier" in policy.model_fields_set else []
    if group in policy.system_tier_by_group:
        widely.append(policy.system_tier_by_group[group])
    found: dict[str, AgentSpec] = {}
    for name, spec in agents.items():
        said = list(widely)
        if "system_tier" in spec.config.model_fields_set:
            said.append(spec.config.system_tier)
        if name in policy.system_tier_by_agent:
            said.append(policy.system_tier_by_agent[name])
        tier = choose_strictest(*said) if said else decide_system_calls(named)
        config = spec.config.model_copy(update={"system_tier": tier})
        found[name] = spec.model_copy(update={"config": config})
    return found


def fix_system_answer(policy: PolicyConfig) -> PolicyConfig:
    """Return a policy whose answer to System calls counts as written, whichever mode a program chooses.

    It is for a program whose own default is another mode than :data:`DEFAULT_MODE`: no person named it.
    """
    return policy.model_copy(update={"system_tier": policy.system_tier})


def describe_mode(mode: str) -> str:
    """Return a mode as a screen says it; ``always`` alone would read as consent."""
    return "asks each time" if mode == "always" else mode


def describe_commands(mode: str, system_tier: SystemAnswer) -> str:
    """Return what happens to commands of a session, as a screen says it."""
    if system_tier == "allow":
        return "run unasked, in the sandbox"
    if system_tier == "deny" or mode == "never":
        return "refused"
    if mode == "auto":
        return "approved by the mode, in the sandbox"
    if mode == "smart":
        return "run unasked where they are known to change nothing, else asked about; in the sandbox"
    return "asked about each time, in the sandbox"


def describe_rights(report: SessionReport) -> str:
    """Return what a session may do without a person, in one line for a screen."""
    said = f"approvals: {describe_mode(report.approval_mode)}"
    if report.exec_security is not None:  # its kind has a shell
        said += f", commands: {describe_commands(report.approval_mode, report.system_tier)}"
    return f"{said}, only its children may use: {', '.join(report.delegates)}" if report.delegates else said


def decide_outcome(named: ApprovalMode | None, made: Call, *, with_person: bool) -> Outcome:
    """Return what happens to a call of a tree without rules and settings of its own.

    Args:
        named: The mode that is named; None = none is.
        made: The kind of call.
        with_person: Whether Main has a channel on which a person can be asked.
    """
    mode = choose_mode(named)
    is_system = made.startswith("System")
    if made in {"ReadOnly", "Workspace"} or (is_system and decide_system_calls(named) == "allow"):
        return "runs"
    if mode == "auto":
        return "approved"
    if mode == "never":
        return "refused"
    if mode == "smart" and made == "System, harmless":
        return "approved"
    return "asks" if with_person else "refused"


def format_mode_table() -> str:
    """Return the table of modes and calls in Markdown, as the documents show it."""
    said = {"asks": "a person is asked", "refused": "refused", "runs": "runs", "approved": "runs, recorded"}
    rows = [
        "| `approvals` | a person can be asked | " + " | ".join(CALLS) + " |",
        "|" + "---|" * (len(CALLS) + 2),
    ]
    for named in (None, *MODES):
        for with_person in (True, False):
            cells = [said[decide_outcome(named, each, with_person=with_person)] for each in CALLS]
            name = _NOT_NAMED if named is None else f"`{named}`"
            rows.append(f"| {name} | {'yes' if with_person else 'no'} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"
