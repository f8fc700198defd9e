"""The watcher's own books of sessions: who was spawned, and whether the answer to a spawn was right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sessiontree.contracts.facts.tree_config import AgentRow, SessionSpec, TreeConfig
from sessiontree.contracts.facts.tree_facts import (
    CancelBegun,
    SessionAdopted,
    SessionEnded,
    SessionSpawned,
    TreeCreated,
    TreeFact,
)
from sessiontree.contracts.settings.settings import Limits
from sessiontree.tree.state.protocol import (
    AcceptSpawn,
    RefuseSpawn,
    SpawnAsked,
    TreeInstruction,
    TreeStimulus,
)
from tests.unit.tree.tree_fixtures import BRANCH, MAIN, WORKER

if TYPE_CHECKING:
    from tests.unit.tree.budget_oracle import BudgetBooks


class SpawnBooks:
    """Specs in spawn order, and who of them lives."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.config: TreeConfig | None = None
        self.specs: dict[str, SessionSpec] = {}
        self.live: list[str] = []
        self.stopping: set[str] = set()
        self.keys: dict[tuple[str, str], str] = {}
        self.expires_at: dict[str, int] = {}

    @property
    def limits(self) -> Limits:
        """The tree's bounds."""
        assert self.config is not None, "S13: a session before its tree"
        return self.config.limits

    def chain(self, name: str) -> list[str]:
        """Return a session and its ancestors, Main last, read from its path."""
        parts = name.split("/")
        return ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]

    def live_children(self, parent: str) -> list[str]:
        """Return a session's live children."""
        return [name for name in self.live if self.specs[name].parent == parent]

    def book(self, fact: TreeFact, stimulus: TreeStimulus, at_ms: int) -> None:
        """Take a fact in; a spawn is judged at once."""
        if isinstance(fact, TreeCreated):
            assert self.config is None, "S15: a tree is created twice"
            self.config = fact.config
        elif isinstance(fact, SessionSpawned):
            assert fact.spec.session_id not in self.specs, f"S18: {fact.spec.session_id} is not new"
            self._judge_place(fact)
            self._judge_rights(fact.spec)
            self._judge_time(fact.spec, stimulus, at_ms)
            self.specs[fact.spec.session_id] = fact.spec
            self.live.append(fact.spec.session_id)
            if fact.spec.parent is not None and fact.spec.key is not None:
                self.keys[fact.spec.parent, fact.spec.key] = fact.spec.session_id
            self._judge_numbers(fact.spec)
        elif isinstance(fact, SessionAdopted):
            assert fact.session in self.live, f"S15: {fact.session} is embodied after its end"
            assert fact.session not in self.expires_at, f"S13: the life of {fact.session} begins again"
            ttl_s = self.specs[fact.session].ttl_s
            assert ttl_s is not None, f"S13: {fact.session} has no time to live"
            right = fact.expires_at_ms == at_ms + round(ttl_s * 1000)
            assert right, f"S13: the time to live of {fact.session} does not begin with its host"
            self.expires_at[fact.session] = fact.expires_at_ms
        elif isinstance(fact, SessionEnded):
            self.live.remove(fact.session)
        elif isinstance(fact, CancelBegun):
            self.stopping.update(fact.sessions)

    def _judge_place(self, fact: SessionSpawned) -> None:
        spec = fact.spec
        if spec.kind is MAIN:
            assert (spec.session_id, spec.parent, spec.depth) == ("main", None, 0), "S13: a second root"
            return
        siblings = [
            each for each in self.specs.values() if (each.parent, each.kind) == (spec.parent, spec.kind)
        ]
        assert fact.number == len(siblings) + 1, f"S18: {spec.session_id} is number {fact.number}"
        letter = "b" if spec.kind is BRANCH else "w"
        assert spec.session_id == f"{spec.parent}/{letter}{fact.number}", f"S18: id {spec.session_id}"
        assert spec.parent in self.live, f"S13: {spec.session_id} below one that does not live"
        assert spec.parent not in self.stopping, f"S13: {spec.session_id} below one that stops"
        assert spec.depth == len(self.chain(spec.session_id)) - 1, f"S13: depth of {spec.session_id}"
        assert self.specs[spec.parent].kind is not WORKER, f"P10: {spec.session_id} below a worker"

    def _judge_rights(self, spec: SessionSpec) -> None:
        assert self.config is not None, "S13: a session before its tree"
        rows = {row.name: row.kinds for row in self.config.tools}
        agent = next(row for row in self.config.agents if row.name == spec.agent)
        lists = () if self.config.policy is None else self.config.policy.removed
        removed = {
            tool
            for each in lists
            if (each.agent, each.kind) == (agent.name, spec.kind)
            for tool in each.tools
        }
        for tool in spec.tools:
            assert spec.kind in rows[tool], f"P9: {tool} is not for a {spec.kind}"
            assert agent.tools is None or tool in agent.tools, f"P9: {tool} is not for agent {spec.agent}"
            assert tool not in removed, f"P9: the policy removed {tool} from {spec.session_id}"
        self._judge_ceiling(spec, agent)
        above = [] if spec.parent is None else [self.specs[spec.parent].system_tier]
        order = ("allow", "ask", "deny")
        for tier in (agent.system_tier, *above):
            strict = order.index(spec.system_tier) >= order.index(tier)
            assert strict, f"P9: System calls of {spec.session_id} are {spec.system_tier}, not {tier}"
        sayings = [agent.exec_security]
        if spec.parent is not None:
            sayings.append(self.specs[spec.parent].exec_security)
        order = ("full", "safe-bin", "paranoid")
        strict = order.index(spec.exec_security) >= max(map(order.index, sayings))
        assert strict, f"P9: commands of {spec.session_id} are {spec.exec_security}, not one of {sayings}"
        if spec.via == "model":
            answers = spec.rules or spec.approver or spec.owns_channel
            assert not answers, f"P10: {spec.session_id} was given an approver by a model"

    def _judge_ceiling(self, spec: SessionSpec, agent: AgentRow) -> None:
        """Judge what comes from above: each ancestor holds or delegates it, and its agent said so."""
        named = set(agent.delegates)
        assert named.issuperset(spec.delegates), f"P9: agent {agent.name} does not delegate {spec.delegates}"
        assert not spec.delegates or spec.kind is not WORKER, f"P9: {spec.session_id} is a leaf"
        assert not set(spec.delegates) & set(spec.tools), f"P9: {spec.session_id} lists {spec.tools} twice"
        for name in self.chain(spec.session_id)[1:]:
            above = self.specs[name]
            for tool in (*spec.tools, *spec.delegates):
                passed_on = tool in above.tools or tool in above.delegates
                assert passed_on, f"P9: {spec.session_id} has {tool}, {name} neither holds nor delegates it"

    def _judge_time(self, spec: SessionSpec, stimulus: TreeStimulus, at_ms: int) -> None:
        if spec.parent is None:
            return
        own_s = spec.ttl_s
        default_s = self.limits.branch_ttl_s if spec.kind is BRANCH else self.limits.worker_ttl_s
        if spec.via == "model" and default_s is not None:
            assert own_s is not None and own_s <= default_s, "P10: a model gained time"
        asked_s = stimulus.ttl_s if isinstance(stimulus, SpawnAsked) else None
        if asked_s is not None:
            assert own_s is not None and own_s <= asked_s, "S13: the asked time is not kept"

    def _judge_numbers(self, spec: SessionSpec) -> None:
        limits = self.limits
        assert len(self.live) <= limits.max_live, f"S13: {len(self.live)} live"
        assert len(self.specs) <= limits.max_total, f"S13: {len(self.specs)} in all"
        deepest = limits.max_depth if spec.kind is WORKER else limits.max_depth - 1
        assert spec.depth <= max(deepest, 0), f"S13: a {spec.kind} at depth {spec.depth}"
        if spec.parent is not None:
            children = self.live_children(spec.parent)
            assert len(children) <= limits.max_children, f"S13: {len(children)} children of {spec.parent}"
            labels = [self.specs[name].label for name in children if self.specs[name].label is not None]
            assert len(labels) == len(set(labels)), f"S13: label {spec.label} twice below {spec.parent}"

    def expect(self, asked: SpawnAsked) -> None:
        """Note, before the step, what a repeated key must answer."""
        self.expected = self.keys.get((asked.parent, asked.key)) if asked.key is not None else None

    def judge_answer(self, asked: SpawnAsked, told: Sequence[TreeInstruction], budgets: BudgetBooks) -> None:
        """Judge whether the spawn was answered, and by the right answer."""
        accepted = [each for each in told if isinstance(each, AcceptSpawn)]
        refused = [each for each in told if isinstance(each, RefuseSpawn)]
        assert len(accepted) + len(refused) == 1, "S13: a spawn without its one answer"
        if self.expected is not None:
            same = bool(accepted) and accepted[0].session == self.expected and not accepted[0].started
            assert same, f"S18: key {asked.key} is not {self.expected} any more"
        elif refused:
            assert not self._fits(asked, budgets), f"S13: refused without a cause: {refused[0].error}"
        else:
            assert accepted[0].started, "S18: a new child that was not started"

    def _fits(self, asked: SpawnAsked, budgets: BudgetBooks) -> bool:
        """Whether nothing forbids a spawn; read after it was refused, when the books still show why."""
        if self.config is None or asked.parent not in self.live or asked.parent in self.stopping:
            return False
        if asked.forbidden is not None:
            return False
        numbers = [] if asked.ttl_s is None else [asked.ttl_s]
        if asked.budget is not None:
            numbers += [value for value in dict(asked.budget).values() if value is not None]
        if asked.via == "root" or asked.ttl_s == 0 or not all(0 <= number < math.inf for number in numbers):
            return False
        limits = self.limits
        depth = self.specs[asked.parent].depth + 1
        label_taken = bool(asked.label) and any(
            self.specs[name].label == asked.label for name in self.live_children(asked.parent)
        )
        return (
            asked.kind is not MAIN
            and self.specs[asked.parent].kind is not WORKER
            and depth <= (limits.max_depth if asked.kind is WORKER else limits.max_depth - 1)
            and len(self.live_children(asked.parent)) < limits.max_children
            and len(self.live) < limits.max_live
            and len(self.specs) < limits.max_total
            and not label_taken
            and (asked.agent is None or any(row.name == asked.agent for row in self.config.agents))
            and budgets.fits(asked)
            and (asked.workspace != "own" or self._has_own(asked))
        )

    def _has_own(self, asked: SpawnAsked) -> bool:
        """Whether a child may work in a copy: a Branch that may write, and the copy was made."""
        may_write = self.specs[asked.parent].workspace_access == "rw"
        return may_write and asked.kind is BRANCH and asked.copy is not None
