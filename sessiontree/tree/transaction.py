"""A decision being written: the facts and instructions so far, and the state as those facts leave it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from sessiontree.contracts.codec import Recorded
from sessiontree.contracts.stimuli import ApproverAsked
from sessiontree.contracts.tree_facts import Posted, SessionStirred, TreeFact
from sessiontree.tree.evolve import evolve
from sessiontree.tree.instructions import Deliver, TreeInstruction
from sessiontree.tree.state import Mail, TreeState


class Draft:
    """What one stimulus leads to. Rules read ``state``, which already shows every fact written here.

    Args:
        state: The state before the stimulus; it is read, never changed.
        at_ms: The stimulus's time.
    """

    __slots__ = ("_instructions", "facts", "now_ms", "state")

    def __init__(self, state: TreeState, at_ms: int) -> None:
        """Lay a layer over the state; clocks may step back, the tree's time does not."""
        self.state = state.layer()
        self.now_ms = max(state.now_ms, at_ms)
        self.facts: list[TreeFact] = []
        self._instructions: list[TreeInstruction] = []

    def write(self, fact: TreeFact) -> None:
        """Add a fact; the state shows it at once."""
        self.facts.append(fact)
        evolve(self.state, fact)

    def tell(self, instruction: TreeInstruction) -> None:
        """Add an instruction, carried out after those before it."""
        self._instructions.append(instruction)

    def post(self, session: str, mail_of: Callable[[str], Mail]) -> None:
        """Owe something to a session, if it lives; what it is told withdraws the result it had offered.

        Being consulted withdraws nothing, for a session answers that beside its own work; nor does
        anything that reaches a session which is stopping.

        Args:
            session: The session.
            mail_of: Makes the stimulus of the id of its post.
        """
        owed = self.state.live_session(session)
        if owed is None:
            return
        post_id = f"{session}#{owed.posted + 1}"
        mail = mail_of(post_id)
        if owed.held is not None and owed.stop is None and not isinstance(mail, ApproverAsked):
            self.write(SessionStirred(session))
        self.write(Posted(post_id, session, cast("Recorded", mail)))
        self.tell(Deliver(session, post_id, mail))

    def instructions(self) -> list[TreeInstruction]:
        """Return the instructions, without deliveries to sessions that ended meanwhile."""
        posts = self.state.posts
        return [
            instruction
            for instruction in self._instructions
            if not isinstance(instruction, Deliver) or instruction.post_id in posts
        ]
