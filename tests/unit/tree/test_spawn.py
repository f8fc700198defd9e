"""Spawning: every check before anything starts, and the rights a child has for life."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sessiontree.contracts.errors import ConfigError, LimitExceeded, SpawnRefused
from sessiontree.contracts.facts.tree_config import AgentRow
from sessiontree.contracts.facts.tree_facts import (
    CancelBegun,
    SessionAdopted,
    SessionSpawned,
    SpawnDenied,
    TreeCreated,
)
from sessiontree.contracts.recorded.approvals import Rule
from sessiontree.contracts.settings.settings import Budget, Limits
from sessiontree.tree.decide import react
from sessiontree.tree.rules.spawn import end_of_life_ms
from sessiontree.tree.state.protocol import AcceptSpawn, RefuseSpawn, SpawnAsked, TreeOpened, WakeTreeAt
from sessiontree.tree.state.state import make_initial_tree
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import BRANCH, MAIN, WORKER, config


def test_opening_creates_the_tree_and_its_main_once() -> None:
    """Main is there from the first fact on; opening again changes nothing."""
    harness = Harness().open()
    assert [type(fact) for fact in harness.facts] == [TreeCreated, SessionSpawned]
    assert harness.told == [AcceptSpawn("main", True)]
    harness.open(owns_channel=False)
    assert (harness.facts, harness.told) == ([], [])


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"limits": Limits(cancel_grace_s=float("inf"))}, "cancel_grace_s"),
        ({"budget": Budget(cost_usd=float("inf"))}, "cost_usd"),
    ],
)
def test_tree_without_finite_numbers_is_refused(settings: dict[str, Any], word: str) -> None:
    """What JSON cannot say is refused before anything exists, and named."""
    with pytest.raises(ConfigError, match=word):
        Harness().open(**settings)


def test_tree_without_agents_is_refused() -> None:
    """Main needs an agent."""
    settings = config()
    object.__setattr__(settings, "agents", ())
    with pytest.raises(ConfigError, match="agent"):
        react(make_initial_tree(), TreeOpened(0, settings))


def test_nothing_can_be_spawned_before_the_tree_is_opened() -> None:
    """A stimulus that comes before the tree finds no session."""
    assert "no session of that path" in Harness().refused("main", WORKER).reason


@pytest.mark.covers("C1")
def test_ids_count_by_parent_and_kind() -> None:
    """Numbers are never used again, not even after an end."""
    harness = Harness().open()
    assert harness.spawn("main", BRANCH) == "main/b1"
    assert harness.spawn("main", WORKER) == "main/w1"
    assert harness.spawn("main/b1", WORKER) == "main/b1/w1"
    harness.offer("main/w1")
    assert harness.spawn("main", WORKER) == "main/w2"
    assert harness.spawn("main", BRANCH) == "main/b2"


@pytest.mark.covers("C1")
def test_worker_never_spawns() -> None:
    """A Worker is a leaf whatever asks in its name."""
    harness = Harness().open()
    worker = harness.spawn("main", WORKER)
    for kind in (BRANCH, WORKER):
        for via in ("model", "handle"):
            assert "a worker is a leaf" in harness.refused(worker, kind, via).reason


@pytest.mark.covers("C1")
@pytest.mark.parametrize("via", ["handle", "model"])
def test_nobody_spawns_a_main(via: str) -> None:
    """A tree has one root."""
    error = Harness().open().refused("main", MAIN, via)
    assert type(error) is SpawnRefused
    assert "nobody spawns" in error.reason


@pytest.mark.covers("REL-L51")
def test_nobody_spawns_as_the_root() -> None:
    """Only opening a tree makes a session of nobody."""
    assert "only main" in Harness().open().refused("main", WORKER, "root").reason


@pytest.mark.covers("C1")
def test_depth_leaves_room_below_a_branch() -> None:
    """A Branch ends one level above the deepest, a Worker at it."""
    harness = Harness().open(limits=Limits(max_depth=3))
    first = harness.spawn("main", BRANCH)
    second = harness.spawn(first, BRANCH)
    error = harness.refused(second, BRANCH)
    assert isinstance(error, LimitExceeded)
    assert (error.limit, error.used, error.allowed) == ("max_depth", 4, 3)
    assert harness.spawn(second, WORKER) == "main/b1/b1/w1"


def test_depth_one_has_workers_only() -> None:
    """One level has no room for a Branch."""
    harness = Harness().open(limits=Limits(max_depth=1))
    assert harness.refused("main", BRANCH).limit == "max_depth"
    harness.spawn("main", WORKER)


@pytest.mark.covers("LIM1")
@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(max_children=2), "max_children"),
        (Limits(max_live=3), "max_live"),
        (Limits(max_total=3), "max_total"),
    ],
)
def test_counts_are_refused_at_their_limit(limits: Limits, limit: str) -> None:
    """Two fit and the third does not; the fact and the error carry the numbers."""
    harness = Harness().open(limits=limits)
    harness.spawn("main", WORKER)
    harness.spawn("main", WORKER)
    error = harness.refused("main", WORKER)
    assert isinstance(error, LimitExceeded)
    assert (error.limit, error.used - error.allowed) == (limit, 1)
    assert str(error).startswith("session 'main': ")
    fact = harness.one(SpawnDenied)
    assert (fact.limit, fact.used, fact.allowed, fact.reason) == (
        limit,
        error.used,
        error.allowed,
        error.reason,
    )


def test_end_makes_room_for_the_living_but_not_in_all() -> None:
    """Live counts fall at an end, the total never does."""
    harness = Harness().open(limits=Limits(max_children=1, max_total=3))
    harness.offer(harness.spawn("main", WORKER))
    harness.offer(harness.spawn("main", WORKER))
    assert harness.refused("main", WORKER).limit == "max_total"


def test_unknown_agent_is_refused_with_the_known_ones() -> None:
    """The error says what there is."""
    reason = Harness().open().refused("main", WORKER, agent="nobody").reason
    assert "there are careful, default, lead, middle, reader, shut, writer" in reason


def test_label_belongs_to_one_live_child() -> None:
    """It can be had again after the end, and by a child of another parent."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH, label="scout")
    error = harness.refused("main", WORKER, label="scout")
    assert type(error) is SpawnRefused
    assert "'scout'" in error.reason and "'main/b1'" in error.reason
    harness.offer(harness.spawn(branch, WORKER, label="scout"))
    harness.offer(branch)
    harness.spawn("main", WORKER, label="scout")
    assert harness.session(harness.spawn("main", WORKER, label="")).spec.label is None


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan"), float("inf")])
def test_time_to_live_that_is_none_is_refused(ttl_s: float) -> None:
    """Only seconds above zero are a time to live."""
    assert "ttl_s" in Harness().open().refused("main", WORKER, ttl_s=ttl_s).reason


def test_budget_that_is_not_finite_is_refused() -> None:
    """What JSON cannot say never reaches the record."""
    error = Harness().open().refused("main", WORKER, budget=Budget(cost_usd=float("inf")))
    assert "cost_usd of its budget" in error.reason


@pytest.mark.covers("KEY1")
def test_key_names_the_same_child_for_ever() -> None:
    """Asked again, alive, ended, or below an ended parent, it is the same child, and nothing starts."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    child = harness.spawn(branch, WORKER, key="k")
    for finish in (None, child, branch):
        if finish is not None:
            harness.offer(finish)
        harness.feed(SpawnAsked(0, branch, WORKER, "other task", "model", key="k"))
        assert harness.facts == []
        assert harness.told == [AcceptSpawn(child, False)]
    assert harness.spawn("main", WORKER, key="k") == "main/w1"


def test_refused_key_may_be_asked_again() -> None:
    """A refusal names nobody."""
    harness = Harness().open(limits=Limits(max_children=1))
    first = harness.spawn("main", WORKER)
    harness.refused("main", WORKER, key="k")
    harness.offer(first)
    assert harness.spawn("main", WORKER, key="k") == "main/w2"


def test_nothing_is_spawned_below_what_stops_or_has_ended() -> None:
    """The answer says which of the two it is."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    harness.stop(branch, "enough of it")
    assert "it is stopping (enough of it)" in harness.refused(branch, WORKER).reason
    harness.offer(branch)
    assert "it has ended (cancelled)" in harness.refused(branch, WORKER).reason


@pytest.mark.covers("U16", "REL-L49", "RGT2")
@pytest.mark.parametrize(
    ("kind", "agent", "tools"),
    [
        (BRANCH, None, ("deploy", "read", "search", "write")),
        (WORKER, None, ("read", "search")),
        (BRANCH, "reader", ("read", "search")),
        (BRANCH, "writer", ("read", "write")),
        (WORKER, "writer", ("read",)),
        (BRANCH, "careful", ("read", "search")),
    ],
)
def test_ceiling_is_what_parent_kind_agent_and_policy_share(kind: Any, agent: str | None, tools: Any) -> None:
    """Below Main, which holds everything, kind, agent and the owner's policy decide."""
    harness = Harness().open()
    assert harness.session("main").spec.tools == ("deploy", "owner_only", "read", "search", "write")
    assert harness.session(harness.spawn("main", kind, agent=agent)).spec.tools == tools


@pytest.mark.covers("REL-P10", "RGT2")
def test_ceiling_never_rises_again() -> None:
    """A child of a narrow parent stays narrow, whatever agent it names; it keeps its parent's else."""
    harness = Harness().open()
    reader = harness.spawn("main", BRANCH, agent="reader")
    assert harness.session(harness.spawn(reader, BRANCH, agent="default")).spec.tools == ("read", "search")
    assert harness.session(harness.spawn(reader, BRANCH, agent="writer")).spec.tools == ("read",)
    assert harness.session(harness.spawn(reader, WORKER)).spec.agent == "reader"
    careful = harness.spawn("main", BRANCH, agent="careful")
    assert harness.session(harness.spawn(careful, BRANCH, agent="default")).spec.tools == ("read", "search")


@pytest.mark.covers("RGT13")
def test_delegate_is_held_by_children_alone_and_passes_through_them_by_name() -> None:
    """A child holds what its parent delegates; a grandchild only what the child holds or delegates itself."""
    harness = Harness().open()
    lead = harness.session(harness.spawn("main", BRANCH, agent="lead")).spec
    assert (lead.tools, lead.delegates) == (("read",), ("deploy", "search"))
    default = harness.session(harness.spawn(lead.session_id, BRANCH, agent="default")).spec
    assert (default.tools, default.delegates) == (("deploy", "read", "search"), ())
    middle = harness.session(harness.spawn(lead.session_id, BRANCH, agent="middle")).spec
    assert (middle.tools, middle.delegates) == (("read", "search"), ("deploy",))
    below = harness.session(harness.spawn(middle.session_id, BRANCH, agent="default")).spec
    assert below.tools == ("deploy", "read", "search")
    reader = harness.session(harness.spawn(lead.session_id, BRANCH, agent="reader")).spec
    below = harness.session(harness.spawn(reader.session_id, BRANCH, agent="default")).spec
    assert (below.tools, below.delegates) == (("read", "search"), ())
    worker = harness.session(harness.spawn(lead.session_id, WORKER, agent="lead")).spec
    assert (worker.tools, worker.delegates) == (("read",), ())


@pytest.mark.covers("A12", "REL-L49")
@pytest.mark.parametrize(
    ("above", "agent", "holds"),
    [
        ("careful", "default", "ask"),
        ("shut", "careful", "deny"),
        ("default", "shut", "deny"),
        ("careful", None, "ask"),
    ],
)
def test_what_happens_to_system_calls_only_gets_stricter(above: str, agent: str | None, holds: str) -> None:
    """A child runs as any agent, and the strictest answer of all above it stays, about commands too."""
    harness = Harness().open()
    parent = harness.spawn("main", BRANCH, agent=above)
    child = harness.spawn(parent, BRANCH, agent=agent)
    leaf = harness.spawn(child, WORKER, agent="default")
    commands = {"ask": "safe-bin", "deny": "paranoid"}[holds]
    for spec in (harness.session(child).spec, harness.session(leaf).spec):
        assert (spec.system_tier, spec.exec_security) == (holds, commands)


@pytest.mark.covers("APP5")
def test_model_gives_nobody_the_power_to_approve() -> None:
    """Rules, function and channel come from the creating program alone."""
    given: dict[str, Any] = {"rules": (Rule(answer="approve"),), "approver": "m:f", "owns_channel": True}
    harness = Harness().open()
    spec = harness.session(harness.spawn("main", BRANCH, via="model", **given)).spec
    assert (spec.rules, spec.approver, spec.owns_channel) == ((), None, False)
    spec = harness.session(harness.spawn("main", BRANCH, via="handle", **given)).spec
    assert (spec.rules, spec.approver, spec.owns_channel) == (given["rules"], "m:f", True)


@pytest.mark.parametrize(
    ("kind", "via", "ttl_s", "lives_s"),
    [
        (BRANCH, "handle", None, 1800),
        (WORKER, "handle", None, 300),
        (WORKER, "model", 10.0, 10),
        (WORKER, "model", 400.0, 300),
        (WORKER, "handle", 400.0, 400),
        (BRANCH, "handle", 5000.0, 5000),
    ],
)
def test_model_only_shortens_a_time_to_live(kind: Any, via: str, ttl_s: float | None, lives_s: int) -> None:
    """The kind's default is a model's upper bound and a program's suggestion; a bell is set for it."""
    harness = Harness().open()
    harness.now_ms = 7
    name = harness.spawn("main", kind, via=via, ttl_s=ttl_s)
    assert harness.session(name).spec.ttl_s == lives_s
    harness.embody(name)
    assert harness.session(name).expires_at_ms == 7 + lives_s * 1000
    assert harness.one(WakeTreeAt).at_ms == 7 + lives_s * 1000


def test_nobody_outlives_its_parent() -> None:
    """A child's end comes with its parent's at the latest, even where its kind has none of its own."""
    harness = Harness().open(limits=Limits(worker_ttl_s=None))
    branch = harness.spawn("main", BRANCH, ttl_s=5)
    long, endless, apart = (
        harness.spawn(branch, WORKER, ttl_s=60),
        harness.spawn(branch, WORKER),
        harness.spawn("main", WORKER),
    )
    for name in (long, endless, apart, branch):
        harness.embody(name)
    ends_ms = [end_of_life_ms(harness.state, name) for name in (branch, long, endless, apart)]
    assert ends_ms == [5000, 5000, 5000, None]
    harness.pass_s(5)
    assert harness.one(CancelBegun).sessions == (branch, long, endless)


def test_waiting_for_a_host_costs_no_life() -> None:
    """A time to live begins with the first host; letting go of it and coming back changes nothing."""
    harness = Harness().open()
    worker = harness.spawn("main", WORKER, ttl_s=3)
    harness.pass_s(1000)
    assert harness.facts == []
    harness.embody(worker)
    assert harness.one(SessionAdopted) == SessionAdopted(worker, 1_000_000, 1_003_000)
    harness.pass_s(2)
    harness.crash()
    harness.embody(worker)
    assert (harness.facts, harness.told) == ([], [])
    harness.pass_s(1)
    assert harness.one(CancelBegun).status == "expired"
    harness.embody(worker)
    harness.embody("main")
    harness.embody("main/w9")
    assert SessionAdopted not in map(type, harness.facts)


@pytest.mark.covers("REL-L55")
def test_model_that_always_spawns_stops_at_the_caps() -> None:
    """REL-L55: whoever lives spawns whatever it may, for ever; the tree stays within every bound."""
    limits = Limits(max_depth=3, max_children=3, max_live=12, max_total=40)
    state = make_initial_tree()
    react(state, TreeOpened(0, config(limits=limits, budget=Budget(sessions=25))))
    refused: set[str | None] = set()
    for wave in range(12):
        for name in [name for name, session in state.sessions.items() if session.is_live]:
            for kind in (BRANCH, WORKER):
                _, told = react(state, SpawnAsked(wave, name, kind, "more", "model"))
                refused |= {
                    getattr(each.error, "limit", None) for each in told if isinstance(each, RefuseSpawn)
                }
                assert state.live <= limits.max_live and state.total <= 26
        state.list_chain("main")
    assert state.total <= 26
    assert {"max_depth", "max_children", "max_live"} & refused


@pytest.mark.parametrize(("outer", "inner"), [("ro", "rw"), ("rw", "ro"), ("ro", "ro"), ("rw", "rw")])
def test_child_never_writes_where_its_parent_only_reads(outer: Any, inner: Any) -> None:
    """Access to the workspace only narrows on the way down, whatever a child's agent may do elsewhere."""
    agents = (
        AgentRow("default", "m", None),
        AgentRow("outer", "m", None, workspace_access=outer),
        AgentRow("inner", "m", None, workspace_access=inner),
    )
    harness = Harness()
    harness.feed(TreeOpened(0, replace(config(), agents=agents)))
    child = harness.spawn(harness.spawn("main", BRANCH, agent="outer"), BRANCH, agent="inner")
    assert harness.session(child).spec.workspace_access == ("ro" if "ro" in (outer, inner) else "rw")


@pytest.mark.parametrize("agent", ["allow", "ask", "deny"])
@pytest.mark.parametrize("tree", ["allow", "ask", "deny"])
def test_main_gets_the_stricter_answer_to_system_calls(agent: Any, tree: Any) -> None:
    """Its agent may say one thing, and its channel or the policy another."""
    agents = (AgentRow("default", "m", None, agent),)
    harness = Harness()
    harness.feed(TreeOpened(0, replace(config(), agents=agents, system_tier=tree)))
    order = ("allow", "ask", "deny")
    assert harness.session("main").spec.system_tier == max(agent, tree, key=order.index)
