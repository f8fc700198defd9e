"""Spawning: every check before anything starts, then the child with the rights it keeps for life."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from sessiontree.contracts.errors import ConfigError, LimitExceeded, SpawnRefused
from sessiontree.contracts.facts.tree_config import AgentRow, SessionSpec, TreeConfig
from sessiontree.contracts.facts.tree_facts import SessionAdopted, SessionSpawned, SpawnDenied, TreeCreated
from sessiontree.contracts.kinds import ExecSecurity, SessionKind, SystemAnswer, WorkspaceAccess
from sessiontree.contracts.recorded.senders import join_principals
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.tree.state.budgets import add_seconds, find_endless, find_shortage
from sessiontree.tree.state.evolve import Draft
from sessiontree.tree.state.protocol import (
    AcceptSpawn,
    RefuseSpawn,
    SessionEmbodied,
    SpawnAsked,
    TreeOpened,
    WakeTreeAt,
)
from sessiontree.tree.state.state import Session, TreeState


def open_tree(draft: Draft, asked: TreeOpened) -> None:
    """Create the tree and its Main; an existing tree does not change.

    Raises:
        ConfigError: the configuration names no agent, or a limit or budget is not finite.
    """
    config = asked.config
    if draft.state.config is not None:
        return
    if not config.agents:
        raise ConfigError(f"tree {config.tree_id!r} has no agent; give it at least Main's")
    for numbers in (config.limits, config.budget):
        name = find_endless(numbers)
        if name is not None:
            raise ConfigError(
                f"{name} of tree {config.tree_id!r} is not finite; give a number, or None for no bound"
            )
    draft.write(TreeCreated(config))
    agent = config.agents[0].name
    tools = list_main_tools(draft.state, agent)
    spec = SessionSpec(
        session_id=MAIN,
        kind=SessionKind.MAIN,
        parent=None,
        depth=0,
        agent=agent,
        task="",
        label=None,
        via="root",
        tools=tools,
        result_schema=None,
        rules=config.rules,
        approver=None,
        owns_channel=config.owns_channel,
        budget=config.budget,
        key=None,
        system_tier=choose_strictest(config.agents[0].system_tier, config.system_tier),
        dedicated=config.dedicated,
        exec_security=config.agents[0].exec_security,
        workspace_access=config.agents[0].workspace_access,
        skills=config.agents[0].skills,
        exec_hosts=config.agents[0].exec_hosts,
        outside_roots=config.agents[0].outside_roots,
        delegates=list_delegates(draft.state, SessionKind.MAIN, agent, tools, config.agents[0].delegates),
    )
    _start(draft, spec, MAIN, 1)


def spawn(draft: Draft, asked: SpawnAsked) -> None:
    """Start a child, or refuse with a reason; a key used before returns the child it named then."""
    state = draft.state
    known = None if asked.key is None else state.keys.get((asked.parent, asked.key))
    # Before the checks: a call that is repeated after a crash gets its child, also if limits are reached now.
    if known is not None:
        draft.tell(AcceptSpawn(known, False))
        return
    refusal = find_refusal(state, asked)
    if refusal is not None:
        _refuse(draft, asked, refusal)
        return
    parent = state.sessions[asked.parent]
    number = 1 + (parent.branches if asked.kind is SessionKind.BRANCH else parent.workers)
    spec = _build_spec(draft, asked, parent, number)
    _start(draft, spec, spec.session_id if spec.budget is not None else parent.account, number)


def needs_copy(state: TreeState, asked: SpawnAsked) -> bool:
    """Whether a copy must be made before this child can start; False if it is refused or exists already."""
    if asked.workspace is None and asked.kind is not SessionKind.BRANCH:
        return False  # before the checks, which are made again when the child is started
    known = asked.key is not None and (asked.parent, asked.key) in state.keys
    return not known and _find_refusal(state, asked) is None and has_own_workspace(state, asked)


def has_own_workspace(state: TreeState, asked: SpawnAsked) -> bool:
    """Whether a child is to have a workspace of its own: as its spawn, its agent or the tree says.

    Only a Branch that may write has use for one. What the agent or the tree says is not applied to others.
    """
    if asked.workspace is not None:
        return asked.workspace == "own"
    if asked.kind is not SessionKind.BRANCH:
        return False
    parent = state.sessions[asked.parent].spec
    row = _find_row(state.charter, asked.agent or parent.agent)
    may_write = choose_narrowest(parent.workspace_access, row.workspace_access) == "rw"
    chosen = "own" in (row.workspace, state.charter.child_workspace)
    return chosen and may_write


def _find_refusal(state: TreeState, asked: SpawnAsked) -> SpawnRefused | None:
    for check in _CHECKS:
        found = check(state, asked)
        if found is not None:
            return found
    return None


def find_refusal(state: TreeState, asked: SpawnAsked) -> SpawnRefused | None:
    """Return why a spawn is refused; None = it is not."""
    refusal = _find_refusal(state, asked)
    if refusal is not None or asked.copy is not None or not has_own_workspace(state, asked):
        return refusal
    why = "its workspace was not copied, because limits changed meanwhile; try again"
    if asked.via == "cron":
        why = "timed jobs start no branch with a workspace of its own; name another agent, or a worker"
    return _make_refusal(asked, why)


def _start(draft: Draft, spec: SessionSpec, account: str, number: int) -> None:
    draft.write(SessionSpawned(spec, account, number, draft.now_ms))
    draft.tell(AcceptSpawn(spec.session_id, True))
    own = draft.state.accounts.get(spec.session_id)
    if own is not None and own.wall_at_ms is not None:
        draft.tell(WakeTreeAt(own.wall_at_ms))


def adopt(draft: Draft, embodied: SessionEmbodied) -> None:
    """Start a session's time to live with its first host; waiting for a host does not count."""
    session = draft.state.find_live_session(embodied.session)
    if session is None or session.spec.ttl_s is None or session.expires_at_ms is not None:
        return
    expires_at_ms = add_seconds(draft.now_ms, session.spec.ttl_s)
    draft.write(SessionAdopted(embodied.session, draft.now_ms, expires_at_ms))
    draft.tell(WakeTreeAt(expires_at_ms))


def _build_spec(draft: Draft, asked: SpawnAsked, parent: Session, number: int) -> SessionSpec:
    limits = draft.state.limits
    is_branch = asked.kind is SessionKind.BRANCH
    # Only the creating program sets how approvals are decided, whatever a model asks for.
    from_program = asked.via == "handle"
    agent = asked.agent or parent.spec.agent
    ttl_s = time_to_live_s(
        limits.branch_ttl_s if is_branch else limits.worker_ttl_s, asked.ttl_s, may_lengthen=from_program
    )
    row = _find_row(draft.state.charter, agent)
    copy = asked.copy if has_own_workspace(draft.state, asked) else None
    tools = list_child_tools(draft.state, parent.spec, asked.kind, agent)
    return SessionSpec(
        session_id=f"{parent.spec.session_id}/{'b' if is_branch else 'w'}{number}",
        kind=asked.kind,
        parent=parent.spec.session_id,
        depth=parent.spec.depth + 1,
        agent=agent,
        task=asked.task,
        label=asked.label or None,
        via=asked.via,
        tools=tools,
        result_schema=_choose_schema(asked),
        rules=asked.rules if from_program else (),
        approver=asked.approver if from_program else None,
        owns_channel=asked.owns_channel and from_program,
        budget=asked.budget,
        key=asked.key,
        system_tier=choose_strictest(parent.spec.system_tier, row.system_tier),
        dedicated=draft.state.charter.dedicated or (asked.dedicated and from_program),
        exec_security=choose_most_secure(parent.spec.exec_security, row.exec_security),
        asked_by=join_principals(parent.spec.asked_by, asked.asked_by),
        workspace_access=choose_narrowest(parent.spec.workspace_access, row.workspace_access),
        stays_open=asked.stays_open and from_program,
        ttl_s=ttl_s,
        # Its task was written by a session that has read text from outside.
        taint=f"session {parent.spec.session_id}" if parent.taint else "",
        settings=asked.settings,
        skills=tuple(
            [name for name in row.skills if name in parent.spec.skills]
            if asked.skills is None
            else dict.fromkeys(asked.skills)
        ),
        wait=asked.wait,
        workspace=parent.spec.workspace if copy is None else copy.name,
        copy=copy,
        exec_hosts=tuple(name for name in row.exec_hosts if name in parent.spec.exec_hosts),
        outside_roots=select_roots_within(row.outside_roots, parent.spec.outside_roots),
        delegates=list_delegates(draft.state, asked.kind, agent, tools, compute_ceiling(parent.spec)),
        first_call=asked.first_call,
    )


def _choose_schema(asked: SpawnAsked) -> Mapping[str, JsonValue] | None:
    """Return the schema of a child's result: a program's value is any JSON, unless its parent says more."""
    return {} if asked.result_schema is None and asked.first_call is not None else asked.result_schema


def _find_row(config: TreeConfig, agent: str) -> AgentRow:
    for row in config.agents:
        if row.name == agent:
            return row
    raise LookupError(f"the tree has no agent {agent!r}")


def _refuse(draft: Draft, asked: SpawnAsked, error: SpawnRefused) -> None:
    limit, used, allowed = None, 0.0, 0.0
    if isinstance(error, LimitExceeded):
        limit, used, allowed = error.limit, error.used, error.allowed
    draft.write(SpawnDenied(asked.parent, asked.kind, limit, used, allowed, error.reason))
    draft.tell(RefuseSpawn(error))


def _check_forbidden(state: TreeState, asked: SpawnAsked) -> SpawnRefused | None:
    return None if asked.forbidden is None else _make_refusal(asked, asked.forbidden)


def _check_standing(state: TreeState, asked: SpawnAsked) -> SpawnRefused | None:
    parent = state.sessions.get(asked.parent)
    if parent is None:
        why = "no session of that path exists; spawn from one that lives"
    elif not parent.is_live:
        why = f"it has ended ({parent.status}); spawn from a session that lives"
    elif parent.stop is not None:
        why = f"it is stopping ({parent.stop.reason}); spawn from a session that continues"
    else:
        return None
    return _make_refusal(asked, why)


def _check_kinds(state: TreeState, asked: SpawnAsked) -> SpawnRefused | None:
    parent = state.sessions[asked.parent].spec
    if asked.kind is SessionKind.MAIN:
        why = "a tree has one main and nobody spawns another; ask for a branch or a worker"
    elif asked.via == "root":
        why = "only main comes from the root; spawn through a model or a handle"
    elif parent.kind is SessionKind.WORKER:
        why = "a worker is a leaf; let the session above it spawn"
    else:
        return None
    return _make_refusal(asked, why)


def _check_numbers(state: TreeState, asked: SpawnAsked) -> SpawnRefused | None:
    parent = state.sessions[asked.parent]
    limits = state.limits
    depth = parent.spec.depth + 1
    if depth > compute_deepest_level(asked.kind, limits.max_depth):
        # A Branch counts with the level it must leave below it.
        needs = depth if asked.kind is SessionKind.WORKER else depth + 1
        return LimitExceeded(asked.parent, "max_depth", needs, limits.max_depth)
    if parent.live_children >= limits.max_children:
        return LimitExceeded(asked.parent, "max_children", parent.live_children + 1, limits.max_children)
    if state.live >= limits.max_live:
        return LimitExceeded(asked.parent, "max_live", state.live + 1, limits.max_live)
    if state.total >= limits.max_total:
        return LimitExceeded(asked.parent, "max_total", state.total + 1, limits.max_total)
    return None


def _check_names(state: TreeState, asked: SpawnAsked) -> SpawnRefused | None:
    if asked.agent and (asked.agent, asked.kind) not in state.allowed:
        known = ", ".join(sorted({agent for agent, _ in state.allowed}))
        return _make_refusal(asked, f"no agent is called {asked.agent!r}; there are {known}")
    if asked.label:
        holder = state.labels.get((asked.parent, asked.label))
        if holder is not None:
            return _make_refusal(
                asked, f"label {asked.label!r} belongs to {holder!r}; choose another, or wait until it ends"
            )
    held = state.sessions[asked.parent].spec.skills
    for skill in asked.skills or ():
        if skill not in held:
            known = ", ".join(held) or "none"
            return _make_refusal(
                asked, f"{asked.parent} holds no skill {skill!r} to pass on; it holds: {known}"
            )
    if asked.ttl_s is not None and not 0 < asked.ttl_s < math.inf:
        return _make_refusal(
            asked, f"ttl_s is {asked.ttl_s!r}; give seconds above 0, or None for the default"
        )
    name = find_endless(asked.budget)
    if name is not None:
        return _make_refusal(asked, f"{name} of its budget is not finite; give a number, or None for no cap")
    return None


def _check_workspaces(state: TreeState, asked: SpawnAsked) -> SpawnRefused | None:
    if asked.workspace != "own":
        return None
    parent = state.sessions[asked.parent].spec
    if asked.kind is SessionKind.WORKER:
        return _make_refusal(asked, "a worker only reads, so it needs no workspace of its own; leave it out")
    agent = asked.agent or parent.agent
    if choose_narrowest(parent.workspace_access, _find_row(state.charter, agent).workspace_access) == "ro":
        return _make_refusal(
            asked, f"agent {agent!r} may only read there, so it needs no workspace of its own; leave it out"
        )
    return None


def _check_programs(state: TreeState, asked: SpawnAsked) -> SpawnRefused | None:
    """Refuse a program that the child could not begin: it is a call of a tool that it must hold."""
    if asked.first_call is None:
        return None
    parent, tool = state.sessions[asked.parent].spec, asked.first_call.tool
    agent = asked.agent or parent.agent
    if tool in list_child_tools(state, parent, asked.kind, agent):
        return None
    why = f"a {asked.kind} of agent {agent!r} below {asked.parent} does not hold {tool!r}, which it is to run"
    return _make_refusal(asked, f"{why}; name it in the tools of both, or choose another program")


def _make_refusal(asked: SpawnAsked, why: str) -> SpawnRefused:
    named = f" {asked.label!r}" if asked.label else ""
    return SpawnRefused(asked.parent, f"can't spawn a {asked.kind}{named}: {why}")


_CHECKS: tuple[Callable[[TreeState, SpawnAsked], SpawnRefused | None], ...] = (
    # First, because every other check reads the parent.
    _check_standing,
    _check_forbidden,
    _check_kinds,
    _check_numbers,
    _check_names,
    _check_workspaces,
    _check_programs,
    find_shortage,
)
"""In this order; the first refusal is the answer."""


_SECURITIES: tuple[ExecSecurity, ...] = ("full", "safe-bin", "paranoid")
_STRICTNESS: tuple[SystemAnswer, ...] = ("allow", "ask", "deny")


def list_main_tools(state: TreeState, agent: str) -> tuple[str, ...]:
    """Return the names of the tools that Main may hold at most, sorted."""
    return tuple(sorted(state.allowed[agent, SessionKind.MAIN]))


def list_child_tools(state: TreeState, parent: SessionSpec, kind: SessionKind, agent: str) -> tuple[str, ...]:
    """Return the names of the tools that a child may hold at most, sorted."""
    allowed = state.allowed[agent, kind]
    return tuple([name for name in compute_ceiling(parent) if name in allowed])


def compute_ceiling(parent: SessionSpec) -> tuple[str, ...]:
    """Return the names of the tools that a session may pass on: those it holds and delegates, sorted."""
    return tuple(sorted((*parent.tools, *parent.delegates))) if parent.delegates else parent.tools


def list_delegates(
    state: TreeState, kind: SessionKind, agent: str, held: Collection[str], ceiling: Collection[str]
) -> tuple[str, ...]:
    """Return the names of the tools that a session may pass on to its children and not use, sorted.

    Args:
        state: The tree.
        kind: The session's kind; a Worker has no children.
        agent: Its agent; only its owner says what it delegates.
        held: The tools that the session may use.
        ceiling: The tools that its parent may pass on; for Main, what its agent delegates.
    """
    named = _find_row(state.charter, agent).delegates
    if not named or kind is SessionKind.WORKER:
        return ()
    known = frozenset().union(*state.allowed.values())
    return tuple(sorted({name for name in named if name in known and name in ceiling and name not in held}))


def choose_strictest(*tiers: SystemAnswer) -> SystemAnswer:
    """Return the strictest of several answers to System calls."""
    return max(tiers, key=_STRICTNESS.index)


def choose_most_secure(*securities: ExecSecurity) -> ExecSecurity:
    """Return the strictest of several security levels for commands."""
    return max(securities, key=_SECURITIES.index)


def choose_narrowest(*accesses: WorkspaceAccess) -> WorkspaceAccess:
    """Return the strictest of several kinds of access to the workspace."""
    return "ro" if "ro" in accesses else "rw"


def select_roots_within(roots: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """Return those directories that are, by their paths, at or below one that is allowed."""
    return tuple(root for root in roots if any(PurePosixPath(root).is_relative_to(each) for each in allowed))


def compute_deepest_level(kind: SessionKind, max_depth: int) -> int:
    """Return the deepest level of a kind; a Branch leaves room for one level below it."""
    return max_depth if kind is SessionKind.WORKER else max_depth - 1


def time_to_live_s(default_s: float | None, asked_s: float | None, *, may_lengthen: bool) -> float | None:
    """Return a child's time to live in seconds, or None if it lives as long as its parent."""
    if asked_s is None:
        return default_s
    if may_lengthen or default_s is None:
        return asked_s
    # A model may shorten the life of a child, not lengthen it.
    return min(default_s, asked_s)


def end_of_life_ms(state: TreeState, session: str) -> int | None:
    """Return when the time to live of a session, or of one above it, ends; None = no time is set."""
    ends_ms = (link.expires_at_ms for link in state.list_chain(session))
    return min((end_ms for end_ms in ends_ms if end_ms is not None), default=None)


def has_channel(state: TreeState, session: str) -> bool:
    """Return whether a session can ever send a message to people.

    The session or one above it must have a channel and be live, and no message policy may exclude its agent.
    """
    return any(find_channels(state, session)) and explain_left_out(state, state.sessions[session]) is None


def find_channels(state: TreeState, session: str) -> Iterator[Session]:
    """Yield the sessions with a channel from this one upwards, nearest first."""
    return (link for link in state.list_chain(session) if link.is_live and link.spec.owns_channel)


def explain_left_out(state: TreeState, session: Session) -> str | None:
    """Return why a session's agent may not send messages, or None if it may."""
    if session.spec.kind is SessionKind.MAIN:
        return None
    for policy in state.charter.messages:
        if policy.agents is not None and session.spec.agent not in policy.agents:
            may = ", ".join(policy.agents) or "none"
            return (
                f"the message policy lets no Branch of agent {session.spec.agent!r} send messages "
                f"(agents that may: {may}); put it into the result"
            )
    return None
