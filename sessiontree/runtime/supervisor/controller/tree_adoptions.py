"""What a host gets to embody a session, and the facts of the first adoptions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.session_ids import compute_session_key
from sessiontree.runtime.rights.session_rights import describe_denial
from sessiontree.runtime.scheduling.live_session import Controller, LiveSession
from sessiontree.runtime.supervisor.controller.effects import ControllerDeps
from sessiontree.runtime.transport.frames import Adopt
from sessiontree.tree.rules.spawn import has_channel
from sessiontree.tree.state.budgets import compute_remaining
from sessiontree.tree.state.protocol import SessionEmbodied, TreeStimulus

METERED: Final = frozenset({"tokens", "cost_usd", "tool_calls"})
"""Members of a budget that replies use up."""
ADOPTION_RECORD_DELAY_S: Final = 0.05
"""How long after a session's first adoption its time to live is recorded."""


class AdoptingController(Controller, Protocol):
    """The part of a tree's controller that adoptions use."""

    equipment: str
    """Name of the resources that the tree was opened with."""
    watched: int
    """How many watchers the tree's progress has."""

    def stimulate_all(self, given: Sequence[TreeStimulus], cause: str) -> None:
        """Have the tree machine decide on several stimuli, as one commit."""
        ...


class TreeAdoptions:
    """Builds the adoptions of one tree's sessions.

    Args:
        controller: The tree's controller.
        deps: The journal, the agents, and the copies of workspaces.
    """

    def __init__(self, controller: AdoptingController, deps: ControllerDeps) -> None:
        self._controller = controller
        self._deps = deps
        self._agents: dict[tuple[object, ...], AgentConfig] = {}
        """By agent and strictness, the configurations that sessions were adopted with."""
        self._embodied: list[str] = []
        self._recording: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Record the adoptions so far at once."""
        self._record_adoptions()

    def build(self, live: LiveSession, stale: tuple[tuple[str, int], ...]) -> Adopt:
        """Return the frame that makes a host embody a session, and drop states that it keeps in vain."""
        spec = self._controller.state.sessions[live.session].spec
        texts: tuple[str, ...] = ()
        if live.journaled and not live.resumes:
            records = self._deps.journal.read_session(self._controller.config.tree_id, live.session)
            texts = tuple(record.text for record in records)
        agent = self._configure_agent(spec)
        return Adopt(
            self._controller.config.tree_id,
            live.session,
            live.epoch,
            spec,
            self._controller.config.limits,
            agent,
            self._controller.locate_workspace(spec),
            agent.model,
            texts,
            live.recovered,
            not METERED.isdisjoint(compute_remaining(self._controller.state, live.session)),
            live.grant,
            self._controller.watched > 0,
            self._controller.equipment,
            compute_session_key(self._controller.config.nonce, live.session),
            self._deps.clock.offset_ms,
            has_channel(self._controller.state, live.session),
            "" if texts or live.resumes else self._controller.config.guidance,
            live.resumes,
            self._explain_denial(spec),
            stale,
        )

    def _explain_denial(self, spec: SessionSpec) -> str:
        if spec.system_tier != "deny":
            return ""
        return describe_denial(
            self._controller.config,
            [each.spec for each in self._controller.state.list_chain(spec.session_id)],
        )

    def _configure_agent(self, spec: SessionSpec) -> AgentConfig:
        """Return the configuration of a session's agent, as strict as the sessions above it make it."""
        name = spec.agent, *spec.strictness.values()
        agent = self._agents.get(name)
        if agent is None:
            agent = self._deps.agents[spec.agent].model_copy(update=spec.strictness)
            self._agents[name] = agent
        return agent

    def on_embodied(self, live: LiveSession) -> None:
        """Note that a host embodies a session. If its time to live begins now, a fact of it is written soon.

        The facts of several sessions are written together; a session that has ended by then gets none.
        """
        node = self._controller.state.sessions[live.session]
        if node.spec.ttl_s is not None and node.expires_at_ms is None:
            self._embodied.append(live.session)
            if self._recording is None:
                self._recording = asyncio.get_running_loop().call_later(
                    ADOPTION_RECORD_DELAY_S, self._record_adoptions
                )

    def _record_adoptions(self) -> None:
        if self._recording is not None:
            self._recording.cancel()
            self._recording = None
        names, self._embodied = self._embodied, []
        if names and self._controller.failure is None:
            at_ms = self._controller.now_ms()
            self._controller.stimulate_all([SessionEmbodied(at_ms, name) for name in names], "adopted")
