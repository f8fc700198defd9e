"""A session's seat at its supervisor: what is on its way to it, and which host embodies it, if any."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.session_facts import CallIntended
from sessiontree.contracts.stimuli import ClientAnswered, Stimulus

if TYPE_CHECKING:
    from sessiontree.runtime.host_link import HostLink
    from sessiontree.runtime.tree_controller import TreeKeeper


@dataclass(frozen=True, slots=True)
class Input:
    """A stimulus for a session, the id of its cause, and of the post that owes it, if one does."""

    cause: str
    stimulus: Stimulus
    post_id: str | None = None


@dataclass(slots=True, eq=False)
class Seat:
    """One live session. Lost with the supervisor; everything it owes stands in the journal."""

    keeper: TreeKeeper
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
