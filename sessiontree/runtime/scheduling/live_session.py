"""A live session as its supervisor sees it: the stimuli on their way to it, and the host that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Protocol

from sessiontree.contracts.facts.stimuli import ClientAnswered, Stimulus
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.rights.session_rights import read_journaled_policy
from sessiontree.runtime.scheduling.departures import Departures
from sessiontree.runtime.scheduling.tree_waiters import TreeWaiters
from sessiontree.runtime.timing.wait_times import WaitTimes
from sessiontree.runtime.transport.frames import Adopt, Outcome
from sessiontree.runtime.transport.link import HostLink
from sessiontree.runtime.transport.supervisor_api import CodeRaised
from sessiontree.tree.rules.spawn import end_of_life_ms
from sessiontree.tree.state.budgets import compute_remaining
from sessiontree.tree.state.protocol import TreeInstruction, TreeStimulus
from sessiontree.tree.state.state import TreeState


@dataclass(frozen=True, slots=True)
class Input:
    """A stimulus for a session, the id of its cause, and the id of the post that it delivers, if any."""

    cause: str
    stimulus: Stimulus
    post_id: str | None = None


class RaisedListener(Protocol):
    """Hears what code of the program's author raised."""

    def report(self, raised: CodeRaised) -> None:
        """Pass it on to the program."""
        ...


class Adoptions(Protocol):
    """The adoptions of one tree's sessions by hosts."""

    def build(self, live: LiveSession, stale: tuple[tuple[str, int], ...]) -> Adopt:
        """Return the frame that makes a host embody a session, and drop states that it keeps in vain."""
        ...

    def on_embodied(self, live: LiveSession) -> None:
        """Note that a host embodies a session."""
        ...


class Controller(Protocol):
    """The part of a tree's controller that scheduler, effects and reports use."""

    state: TreeState
    config: TreeConfig
    failure: Exception | None
    """Why the tree can't go on in this process; None = it can."""
    live_sessions: dict[str, LiveSession]
    """Records of live sessions, by session id."""
    waiters: TreeWaiters
    """Who waits for what in the tree."""
    departures: Departures
    """Its sessions that are leaving hosts."""
    waits: WaitTimes
    """How long the tree did nothing but wait."""

    @property
    def adoptions(self) -> Adoptions:
        """What hosts get to embody its sessions."""
        ...

    @property
    def inbox_notifier(self) -> RaisedListener:
        """Wakes the program's inbox."""
        ...

    def now_ms(self) -> int:
        """Return the tree's time."""
        ...

    def wall_ms(self) -> int:
        """Return the machine's time."""
        ...

    def get_agent_config(self, agent: str) -> AgentConfig:
        """Return an agent's configuration, with the names of its models."""
        ...

    def locate_workspace(self, spec: SessionSpec) -> str:
        """Return the path of a session's workspace."""
        ...

    def check_open(self) -> None:
        """Raise the error that ended the tree in this process, if any."""
        ...

    async def wait_until_durable(self) -> None:
        """Wait until every fact so far is durable."""
        ...

    def run_afterwards(self, action: Callable[[], None]) -> None:
        """Run an action once every fact so far is durable."""
        ...

    def stimulate(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Have the tree machine decide on a stimulus."""
        ...

    async def settle(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Have the tree machine decide; return its instructions once they are durable and carried out."""
        ...

    def ensure_live_session(self, session: str) -> LiveSession:
        """Return the record of a live session; create it on first use."""
        ...

    def deliver(self, session: str, stimulus: Stimulus, cause: str, post_id: str | None = None) -> None:
        """Deliver a stimulus to a live session."""
        ...

    def on_crash(self, live: LiveSession, reason: str) -> None:
        """Note that a session crashed its host, or every host that it was given."""
        ...

    def on_outcome(self, live: LiveSession, outcome: Outcome) -> None:
        """Process the result of a session's step."""
        ...


@dataclass(slots=True, eq=False)
class LiveSession:
    """One live session. It is lost with the supervisor; everything that is owed is in the journal."""

    controller: Controller
    session: str
    kind: SessionKind
    dedicated: bool
    """Whether it keeps its host until it ends."""
    epoch: int = 0
    """Number of its adoption, unique in this supervisor; outcomes of other epochs are ignored."""
    grant: str = ""
    """The token by which its host identifies it; empty = no host embodies it."""
    link: HostLink | None = None
    waiting: list[Input] = field(default_factory=list)
    """Not sent yet."""
    sent: list[Input] = field(default_factory=list)
    """Sent, not yet reported as taken."""
    taken: int = 0
    """How many inputs were reported as taken in this epoch."""
    idle: bool = True
    """Whether nothing of it runs on its host."""
    jobs: tuple[str, ...] = ()
    """The commands that go on in the background, which keep it on its host."""
    quiet: bool = True
    """Whether nothing was on its way to it when it last offered a result: neither sent, nor waiting, nor owed
    by a commit that is not durable yet."""
    commits: int = 0
    """How many of its commits are not durable yet."""
    journaled: bool = False
    """Whether the journal holds facts of the session."""
    recovered: bool = False
    """Whether its next host must repeat work that is owed."""
    repeats: bool = False
    """Whether the host that has it must do so, and has not reported anything yet."""
    kept: tuple[HostLink, int] | None = None
    """The host that keeps its current state, and the epoch that ended there."""
    resumes: int = 0
    """The epoch whose state its host continues with; 0 = it is rebuilt from its facts."""
    prompt_owed: bool = False
    """Whether its host was asked to send the gateway the whole conversation and has not reported yet."""
    alone: bool = False
    """Whether it may share no host: it was at one with others when that was lost, perhaps by its work."""
    asked: dict[str, CheckedCall] | None = None
    """By open request, calls whose intents become durable with the approval while a host has the session."""
    answers: dict[str, ClientAnswered] | None = None
    """Answers of the program that the session has not accepted or refused yet, by answer id. None, as above,
    until there is one: few sessions have any, and an empty table takes room."""
    losses: int = 0
    """How many hosts it has lost in a row without progress."""
    unfit_until: float = float("-inf")
    """Hosts started before this loop time can't embody it, because they were confined too early."""
    over: bool = False

    def requeue_answers(self) -> None:
        """Queue the answers again that a lost host had received and not settled."""
        coming = {
            each.stimulus.answer_id for each in self.waiting if isinstance(each.stimulus, ClientAnswered)
        }
        for answer_id, answered in (self.answers or {}).items():
            if answer_id not in coming:
                self.waiting.append(Input(f"answer:{answered.client_id}", answered))


NOT_EMBODIED = "none: on no host now"


def build_session_report(controller: Controller, session: str) -> SessionReport:
    """Return the state of one session."""
    state = controller.state
    node = state.sessions[session]
    agent = node.spec.agent
    live = controller.live_sessions.get(session)
    link = None if live is None else live.link
    return SessionReport(
        session_id=session,
        kind=node.spec.kind,
        status=node.status,
        depth=node.spec.depth,
        model=controller.get_agent_config(agent).model,
        turns=node.usage.turns,
        usage=node.usage,
        children=tuple(state.children.list_members(session)),
        pending_approvals=node.pending,
        budget_left=compute_remaining(state, session),
        expires_at_ms=end_of_life_ms(state, session),
        confinement=NOT_EMBODIED if link is None else link.transport.level,
        approval_mode=controller.config.mode,
        system_tier=node.spec.system_tier,
        exec_security=node.spec.commands,
        taint=node.taint,
        after_untrusted=read_journaled_policy(controller.config)[0].after_untrusted,
        compaction_model=controller.get_agent_config(agent).compaction_model,
        jobs=() if link is None or live is None else live.jobs,
        delegates=node.spec.delegates,
    )
