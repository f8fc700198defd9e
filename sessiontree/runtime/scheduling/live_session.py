"""A live session as its supervisor sees it: the stimuli on their way to it, and the host that runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from sessiontree.contracts.facts.stimuli import ClientAnswered, Stimulus
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.runtime.rights.session_rights import read_journaled_policy
from sessiontree.runtime.timing.wait_times import WaitTimes
from sessiontree.runtime.transport.frames import Adopt, Outcome
from sessiontree.runtime.transport.link import HostLink
from sessiontree.runtime.transport.supervisor_api import CallReply, CodeRaised, Reply
from sessiontree.tree.rules.spawn import end_of_life_ms
from sessiontree.tree.state.budgets import compute_remaining
from sessiontree.tree.state.protocol import TreeInstruction, TreeStimulus
from sessiontree.tree.state.state import TreeState

T = TypeVar("T")
_Listener: TypeAlias = Callable[[str, T | None, Exception | None], None]
"""Called with a key, and with its value or the error."""
_Waiter: TypeAlias = tuple[asyncio.Future[T], Callable[[asyncio.Future[T]], None]]
"""A future, and the callback that removes it if it is cancelled."""


class FutureMap(Generic[T]):
    """Futures and listeners by key; several callers may wait for one key."""

    def __init__(self) -> None:
        self._futures: dict[str, list[_Waiter[T]]] = {}
        self._listeners: dict[str, tuple[_Listener[T], ...]] = {}

    def wait(self, key: str) -> asyncio.Future[T]:
        """Return a future for a key."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        forget = partial(self._forget, key)
        self._futures.setdefault(key, []).append((future, forget))
        future.add_done_callback(forget)
        return future

    def listen(self, key: str, listener: _Listener[T]) -> None:
        """Call a listener when a key is settled or failed. It takes a place in a table, and no future."""
        self._listeners[key] = (*self._listeners.get(key, ()), listener)

    def drop_listener(self, key: str | None, listener: _Listener[T]) -> None:
        """Remove a listener of a key, or of all keys."""
        for each in list(self._listeners) if key is None else (key,):
            left = tuple([other for other in self._listeners.get(each, ()) if other is not listener])
            if left:
                self._listeners[each] = left
            else:
                self._listeners.pop(each, None)

    def settle(self, key: str, value: T) -> None:
        """Resolve all futures of a key with a value."""
        for listener in self._listeners.pop(key, ()):
            listener(key, value, None)
        for future, forget in self._futures.pop(key, ()):
            if not future.done():
                future.remove_done_callback(forget)
                future.set_result(value)

    def fail(self, key: str, error: Exception) -> None:
        """Fail all futures of a key."""
        for listener in self._listeners.pop(key, ()):
            listener(key, None, error)
        for future, forget in self._futures.pop(key, ()):
            if not future.done():
                future.remove_done_callback(forget)
                future.set_exception(error)
                future.exception()  # marks it as retrieved: the loop would log it if nobody waits any more

    def fail_all(self, error: Exception) -> None:
        """Fail all futures."""
        for key in {**self._futures, **self._listeners}:
            self.fail(key, error)

    def _forget(self, key: str, future: asyncio.Future[T]) -> None:
        """Remove a future that was cancelled."""
        if future.cancelled() and key in self._futures:
            left = self._futures[key] = [each for each in self._futures[key] if each[0] is not future]
            if not left:
                del self._futures[key]

    def keys(self) -> tuple[str, ...]:
        """Return the keys that somebody waits for."""
        return tuple(self._futures)


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


class Controller(Protocol):
    """The part of a tree's controller that scheduler, effects and reports use."""

    state: TreeState
    config: TreeConfig
    failure: Exception | None
    """Why the tree can't go on in this process; None = it can."""
    live_sessions: dict[str, LiveSession]
    """Records of live sessions, by session id."""
    replies: FutureMap[Reply]
    calls: FutureMap[CallReply]
    results: FutureMap[SessionResult[Any]]
    settling: FutureMap[None]
    """Waiters for the acceptance of answers to client calls, by answer id."""
    expected: dict[str, set[str]]
    """Ids of the messages and calls that somebody waits for, by session."""
    waits: WaitTimes
    """How long the tree did nothing but wait."""

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

    def build_adoption(self, live: LiveSession) -> Adopt:
        """Return the frame that makes a host embody a session."""
        ...

    def embodied(self, live: LiveSession) -> None:
        """Note that a host embodies a session."""
        ...

    def on_session_leaving(self, session: str) -> None:
        """Note that a session starts to leave its host."""
        ...

    def on_session_left(self, session: str, ended: int) -> None:
        """Note that a session has left its host, and that ``ended`` of its processes were ended."""
        ...

    async def wait_until_left(self, session: str, besides: str = "") -> None:
        """Wait for a limited time until a session and those below it have left; ``besides`` may stay."""
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
        children=tuple(state.children.members(session)),
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
