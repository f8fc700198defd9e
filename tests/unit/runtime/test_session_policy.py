"""REL-P8: what a session is shown is what is accepted from it; and what a policy is in a tree's first row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from sessiontree import Limits, PermissionTier, ToolFlag, tool
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.approvals import RejectedCall
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import SessionRights
from sessiontree.contracts.values.messages import ToolCall
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.results import ImmediateOutcome
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.policy.compiled import compile_policy
from sessiontree.policy.settings import PolicyConfig, ToolPolicy
from sessiontree.runtime.host.host import HostResources, build_tooling
from sessiontree.runtime.rights.session_rights import make_policy_row
from sessiontree.runtime.runner.model_requests import ModelRequestBuilder
from sessiontree.runtime.transport.frames import Adopt
from sessiontree.session.decide import build_system_prompt
from sessiontree.session.state import make_initial_state
from sessiontree.testing.context import FixedStatus, fresh_report
from sessiontree_tools import builtin_tools
from tests.unit.policy.policy_strategies import configs

Tooling: TypeAlias = Callable[
    [HostResources, Adopt, SessionRights, Callable[[], int]], tuple[ModelRequestBuilder, Dispatcher]
]
SEARCH = settings(max_examples=200, derandomize=True, database=None, phases=[Phase.generate])


@tool(tier=PermissionTier.WORKSPACE, flags=[ToolFlag.OWNER_ONLY])
def ledger() -> str:
    """Open the ledger."""
    return "open"


@tool(tier=PermissionTier.WORKSPACE)
def tune() -> str:
    """Play."""
    return "playing"


TABLE = ToolTable((*builtin_tools(), ledger, tune), {"tune": "radio"})
NAMES = tuple(entry.name for entry in TABLE)


ASKERS = st.builds(
    Principal,
    id=st.sampled_from(("ada", "bob")),
    name=st.just("somebody"),
    channel=st.just("the control socket"),
    group=st.sampled_from(("", "family")),
    is_owner=st.booleans(),
)
STRANGER = Principal("eve", "somebody", "the control socket", "", is_owner=False)
"""With every tool at hand, what is for owners alone is all that this asker takes away."""


def now_ms() -> int:
    """Return a time."""
    return 0


def adopt(
    kind: SessionKind, agent: str, tools: tuple[str, ...], model: str, delegates: tuple[str, ...] = ()
) -> Adopt:
    """Return the frame that makes a host embody a session with these tools at most."""
    spec = SessionSpec(
        session_id="main",
        kind=kind,
        parent=None,
        depth=0,
        agent=agent,
        task="",
        label=None,
        via="root",
        tools=tools,
        result_schema=None,
        rules=(),
        approver=None,
        owns_channel=False,
        budget=None,
        key=None,
        delegates=delegates,
    )
    config = AgentConfig(agent_id=agent)
    return Adopt("t", "main", 1, spec, Limits(), config, "/", model, (), recovered=False)


def rights_of(frame: Adopt) -> SessionRights:
    """Return rights without a handle: nothing is run here."""
    kind = frame.spec.kind
    return SessionRights(
        "main", frame.spec.agent, kind, Path("/"), frame.config, FixedStatus(fresh_report(kind))
    )


def shown_is_accepted(tooling: Tooling) -> None:
    """Property: the tools a model is shown, and no others, get past the dispatcher's first gate.

    Whoever the turn acts for; the system prompt lists the same.
    """

    @settings(SEARCH, phases=[Phase.explicit, Phase.generate])
    @example(PolicyConfig(), SessionKind.MAIN, "clerk", "scripted", set(), {"exec"}, (STRANGER,))
    @given(
        config=configs(),
        kind=st.sampled_from(SessionKind),
        agent=st.sampled_from(("clerk", "default")),
        model=st.sampled_from(("openai/gpt-5", "scripted")),
        left_out=st.sets(st.sampled_from(NAMES), max_size=3),
        delegated=st.sets(st.sampled_from(NAMES), max_size=2),
        askers=st.lists(ASKERS, max_size=2).map(tuple),
    )
    def check(
        config: PolicyConfig,
        kind: SessionKind,
        agent: str,
        model: str,
        left_out: set[str],
        delegated: set[str],
        askers: tuple[Principal, ...],
    ) -> None:
        tools = set(NAMES) - left_out - delegated
        equipment = HostResources(TABLE, {}, (), None, compile_policy(TABLE.rows, config), "family", None)
        frame = adopt(kind, agent, tuple(sorted(tools)), model, tuple(sorted(delegated)))
        questioner, dispatcher = tooling(equipment, frame, rights_of(frame), now_ms)
        state = make_initial_state(frame.spec, frame.limits)
        state.system_prompt = build_system_prompt(frame.spec, "", questioner.tools)
        state.asked_by = askers
        request = questioner.request(state)
        shown = {spec.name for spec in request.tools}
        assert shown <= tools
        assert shown == set(questioner.tools) or askers
        named = re.findall(r"^Your tools: (.*)\.$", request.system_prompt, re.MULTILINE)
        assert {name for line in named for name in line.split(", ") if name} == shown
        for name in NAMES:
            outcome = dispatcher.prepare("1", ToolCall("c1", name.upper(), {"none_such": 1}), askers)
            if name in shown:
                assert isinstance(outcome, RejectedCall), name
            else:
                assert isinstance(outcome, ImmediateOutcome), name
                assert outcome.outcome == "denied"

    check()


@pytest.mark.covers("I34", "S38", "REL-P8")
@pytest.mark.slow
def test_what_is_shown_is_accepted_and_nothing_else() -> None:
    """For any policy, kind, agent and model, whatever the session was spawned with."""
    shown_is_accepted(build_tooling)


def _unjudged(equipment: HostResources) -> HostResources:
    return replace(equipment, policy=compile_policy(TABLE.rows, PolicyConfig()))


def shows_too_much(
    equipment: HostResources, frame: Adopt, rights: SessionRights, now: Callable[[], int]
) -> tuple[ModelRequestBuilder, Dispatcher]:
    """Planted: a model is shown what its session was spawned with, whatever the policy says now."""
    return build_tooling(_unjudged(equipment), frame, rights, now)[0], build_tooling(
        equipment, frame, rights, now
    )[1]


def accepts_too_much(
    equipment: HostResources, frame: Adopt, rights: SessionRights, now: Callable[[], int]
) -> tuple[ModelRequestBuilder, Dispatcher]:
    """Planted: the dispatcher asks the spec alone."""
    return build_tooling(equipment, frame, rights, now)[0], build_tooling(
        _unjudged(equipment), frame, rights, now
    )[1]


def accepts_delegates(
    equipment: HostResources, frame: Adopt, rights: SessionRights, now: Callable[[], int]
) -> tuple[ModelRequestBuilder, Dispatcher]:
    """Planted: what a session may pass on, it may use."""
    spec = frame.spec
    wide = replace(spec, tools=(*spec.tools, *spec.delegates), delegates=())
    questioner = build_tooling(equipment, frame, rights, now)[0]
    return questioner, build_tooling(equipment, replace(frame, spec=wide), rights, now)[1]


class Unasked:
    """A dispatcher that does not look at whom a call is for."""

    def __init__(self, inner: Dispatcher) -> None:
        """Stand before another one."""
        self.inner = inner

    def prepare(self, key: str, call: ToolCall, asked_by: tuple[Principal, ...] = ()) -> Any:
        """Prepare a call as if the program had asked for it."""
        return self.inner.prepare(key, call)


def accepts_from_anybody(
    equipment: HostResources, frame: Adopt, rights: SessionRights, now: Callable[[], int]
) -> tuple[ModelRequestBuilder, Any]:
    """Planted: who asked counts for what is shown alone."""
    questioner, dispatcher = build_tooling(equipment, frame, rights, now)
    return questioner, Unasked(dispatcher)


@pytest.mark.covers("REL-P8")
@pytest.mark.slow
@pytest.mark.parametrize(
    "planted", [shows_too_much, accepts_too_much, accepts_delegates, accepts_from_anybody]
)
def test_gap_between_shown_and_accepted_is_found(planted: Tooling) -> None:
    """Either half that forgets the policy fails the property."""
    with pytest.raises(AssertionError):
        shown_is_accepted(planted)


def removed(
    config: PolicyConfig, models: Mapping[str, str], named: Mapping[str, frozenset[str]]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return what the first row of a tree says is removed, by agent and kind."""
    row, _ = make_policy_row(config, "family", TABLE, models, named)
    return {(each.agent, str(each.kind)): each.tools for each in row.removed}


def test_first_row_names_what_each_kind_loses() -> None:
    """By agent and kind, of what the kind could hold; owners' tools are Main's alone."""
    named = {"clerk": frozenset({"sessions_list"})}
    config = PolicyConfig(
        tools=ToolPolicy(deny=("web_fetch",)), agents={"clerk": ToolPolicy(deny=("write", "group:plugins"))}
    )
    assert removed(config, {"default": "m", "clerk": "m"}, named) == {
        ("default", "main"): (
            "agents_list",
            "apply_patch",
            "ask_user",
            "browser",
            "canvas",
            "cron",
            "deploy_preview",
            "gateway",
            "http_request",
            "image",
            "nodes",
            "preview_screenshot",
            "program",
            "sessions_history",
            "sessions_list",
            "sessions_send",
            "tts",
            "validate_page",
            "web_fetch",
            "write_html",
        ),
        ("default", "branch"): (
            "agents_list",
            "apply_patch",
            "ask_user",
            "browser",
            "canvas",
            "deploy_preview",
            "gateway",
            "http_request",
            "image",
            "ledger",
            "nodes",
            "preview_screenshot",
            "program",
            "sessions_history",
            "sessions_list",
            "sessions_send",
            "tts",
            "validate_page",
            "web_fetch",
            "write_html",
        ),
        ("default", "worker"): ("program", "web_fetch"),
        ("clerk", "main"): (
            "agents_list",
            "apply_patch",
            "ask_user",
            "browser",
            "canvas",
            "cron",
            "deploy_preview",
            "gateway",
            "http_request",
            "image",
            "nodes",
            "preview_screenshot",
            "program",
            "sessions_history",
            "sessions_send",
            "tts",
            "tune",
            "validate_page",
            "web_fetch",
            "write",
            "write_html",
        ),
        ("clerk", "branch"): (
            "agents_list",
            "apply_patch",
            "ask_user",
            "browser",
            "canvas",
            "deploy_preview",
            "gateway",
            "http_request",
            "image",
            "ledger",
            "nodes",
            "preview_screenshot",
            "program",
            "sessions_history",
            "sessions_send",
            "tts",
            "tune",
            "validate_page",
            "web_fetch",
            "write",
            "write_html",
        ),
        ("clerk", "worker"): ("program", "web_fetch"),
    }


def test_first_row_keeps_the_owner_s_words() -> None:
    """Its lists as written, so that they can judge again, and the group."""
    config = PolicyConfig(tools=ToolPolicy(deny=("Bash",)), strict=True)
    row, warnings = make_policy_row(config, "family", TABLE, {"default": "m"})
    assert PolicyConfig.model_validate(row.config) == config
    assert row.group == "family"
    assert warnings == ()


@pytest.mark.parametrize("strict", [False, True])
def test_agent_that_is_not_there_is_a_slip(strict: bool) -> None:
    """Its lists would bind nobody: reported, and an error where the policy is strict."""
    said: dict[str, Any] = {"agents": {"clark": ToolPolicy(deny=("exec",))}, "strict": strict}
    words = "agents.clark: the tree has no agent of that name"
    if strict:
        with pytest.raises(ConfigError, match=words):
            make_policy_row(PolicyConfig(**said), "", TABLE, {"default": "m"})
    else:
        assert make_policy_row(PolicyConfig(**said), "", TABLE, {"default": "m"})[1] == (words,)
