"""A live session at its supervisor: what is on its way to it, and which host embodies it, if any."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.session_facts import CallIntended
from sessiontree.contracts.stimuli import ClientAnswered, Stimulus
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.runtime.frames import Adopt, Outcome
from sessiontree.runtime.future_map import FutureMap
from sessiontree.runtime.host_link import HostLink
from sessiontree.runtime.replies import CallReply, Reply
from sessiontree.tree.instructions import TreeInstruction
from sessiontree.tree.state import TreeState
from sessiontree.tree.stimuli import TreeStimulus


@dataclass(frozen=True, slots=True)
class Input:
    """A stimulus for a session, the id of its cause, and of the post that owes it, if one does."""

    cause: str
    stimulus: Stimulus
    post_id: str | None = None


class Controller(Protocol):
    """What scheduler, effects and reports use of the controller of a session's tree."""

    state: TreeState
    config: TreeConfig
    failure: Exception | None
    """Why the tree goes on no more in this process."""
    live_sessions: dict[str, LiveSession]
    """Records of live sessions, by session id."""
    replies: FutureMap[Reply]
    calls: FutureMap[CallReply]
    results: FutureMap[SessionResult[Any]]
    settling: FutureMap[None]
    """Who answered calls of the program's, by the ids of the answers."""
    expected: dict[str, set[str]]
    """Ids of the messages and calls that somebody waits for, by session."""

    def now_ms(self) -> int:
        """Return the tree's time."""
        ...

    def model_of(self, agent: str) -> str:
        """Return the name of an agent's model."""
        ...

    def check_open(self) -> None:
        """Raise what ended the tree in this process, if anything did."""
        ...

    async def caught_up(self) -> None:
        """Wait until every fact so far is durable."""
        ...

    def afterwards(self, action: Callable[[], None]) -> None:
        """Run an action once every fact so far is durable."""
        ...

    def stimulate(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Have the tree machine decide on a stimulus."""
        ...

    async def settle(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Have the tree machine decide; returns what follows once it is durable and carried out."""
        ...

    def live_session_of(self, session: str) -> LiveSession:
        """Return the record of a live session, creating it on first use."""
        ...

    def deliver(self, session: str, stimulus: Stimulus, cause: str, post_id: str | None = None) -> None:
        """Bring a stimulus to a live session."""
        ...

    def adoption(self, live: LiveSession) -> Adopt:
        """Return the frame that makes a host embody a session."""
        ...

    def embodied(self, live: LiveSession) -> None:
        """A host embodies a session."""
        ...

    def leaves(self, session: str) -> None:
        """A session begins to leave its host."""
        ...

    def left(self, session: str, ended: int) -> None:
        """A session has left its host, and so many processes that it had left there were ended."""
        ...

    def on_crash(self, live: LiveSession, reason: str) -> None:
        """A session brought its host down, or every host it was given."""
        ...

    def on_outcome(self, live: LiveSession, outcome: Outcome) -> None:
        """Take in what became of a session's step."""
        ...


@dataclass(slots=True, eq=False)
class LiveSession:
    """One live session. Lost with the supervisor; everything it owes stands in the journal."""

    controller: Controller
    session: str
    kind: SessionKind
    dedicated: bool
    """Whether it keeps its host for life."""
    epoch: int = 0
    """Names its adoption, no other of this supervisor; an outcome of another epoch is ignored."""
    grant: str = ""
    """What its host shows to be heard as this session; empty = no host embodies it."""
    link: HostLink | None = None
    waiting: deque[Input] = field(default_factory=deque)
    """Not sent yet."""
    sent: deque[Input] = field(default_factory=deque)
    """Sent, not yet reported as taken."""
    taken: int = 0
    """Inputs reported as taken in this epoch."""
    idle: bool = True
    """Nothing of it runs on its host."""
    quiet: bool = True
    """Whether nothing was on its way to it when it last offered a result: neither sent, nor waiting, nor owed
    by a commit that is not durable yet."""
    commits: int = 0
    """Its facts on their way to the disk."""
    journaled: bool = False
    """Whether the journal holds facts of it."""
    recovered: bool = False
    """Whether the next adoption must do again what is owed."""
    asked: dict[str, CallIntended] = field(default_factory=dict)
    """Intents by open request, to be made durable with its approval while a host embodies the session."""
    answers: dict[str, ClientAnswered] = field(default_factory=dict)
    """The program's answers that the session has not settled, by their ids."""
    losses: int = 0
    """Hosts lost in a row since it last got anything done."""
    misfit_until: float = float("-inf")
    """Hosts started by then can't embody it: they were confined too early."""
    over: bool = False

    def bring_again(self) -> None:
        """Let the next host hear the answers that a lost one had heard and not settled."""
        coming = {
            each.stimulus.answer_id for each in self.waiting if isinstance(each.stimulus, ClientAnswered)
        }
        for answer_id, answered in self.answers.items():
            if answer_id not in coming:
                self.waiting.append(Input(f"answer:{answered.client_id}", answered))

    @property
    def restful(self) -> bool:
        """Whether it could be passivated now: nothing runs, nothing is on its way."""
        return self.idle and not self.waiting and not self.sent and self.commits == 0
