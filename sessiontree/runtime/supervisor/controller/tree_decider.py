"""What the tree machine makes of stimuli: facts, packed for the journal, and instructions."""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.facts.tree_facts import TreeFact
from sessiontree.contracts.recorded.codec import FactJoiner, pack
from sessiontree.journal.record import Packed
from sessiontree.runtime.scheduling.live_session import LiveSession
from sessiontree.runtime.supervisor.controller.inbox_notifier import InboxNotifier
from sessiontree.tree.decide import decide
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.protocol import SessionLost, TreeInstruction, TreeStimulus
from sessiontree.tree.state.state import TreeState


class TreeFacts:
    """The tree's facts of one commit, joined and packed.

    Args:
        cause: The cause of all of them.
    """

    __slots__ = ("_cause", "_joined", "_times")

    def __init__(self, cause: str) -> None:
        self._cause = cause
        self._joined = FactJoiner()
        self._times: list[int] = []

    @property
    def packed(self) -> list[Packed]:
        """All facts, in their order."""
        texts = self._joined.texts
        return [Packed(self._cause, at_ms, text) for at_ms, text in zip(self._times, texts, strict=True)]

    def add(self, facts: Sequence[TreeFact], at_ms: int) -> None:
        """Add the facts of one decision; nothing is added if one of them can't be journaled."""
        texts = [pack(fact) for fact in facts]
        if self._times and self._times[-1] != at_ms:
            self._joined.end()
        for fact, text in zip(facts, texts, strict=True):
            self._joined.add(fact, text)
        self._times += [at_ms] * (len(self._joined.texts) - len(self._times))


class TreeDecider:
    """Has the tree machine decide, and applies its facts to the tree's state.

    Args:
        state: The tree's state.
        inbox_notifier: Notes the facts on which an inbox acts.
    """

    def __init__(self, state: TreeState, inbox_notifier: InboxNotifier) -> None:
        self._state = state
        self._inbox_notifier = inbox_notifier

    def decide_all(
        self, live: LiveSession | None, given: Sequence[TreeStimulus], cause: str
    ) -> tuple[list[Packed], list[TreeInstruction], bool]:
        """Decide on stimuli in turn. If ``decide`` raises for a session's stimulus, the session has crashed.

        Returns:
            The facts to write, the instructions, and whether an inbox acts on any of the facts.

        Raises:
            Exception: ``decide`` raised for a stimulus of the creating program; nothing has changed.
        """
        facts = TreeFacts(cause)
        instructions: list[TreeInstruction] = []
        tell = False
        for stimulus in given:
            try:
                tell = self._decide_one(stimulus, facts, instructions) or tell
            except Exception as error:
                if live is None:
                    raise
                lost = SessionLost(stimulus.at_ms, live.session, describe_error(error))
                self._decide_one(lost, facts, instructions)
                return facts.packed, instructions, True
        return facts.packed, instructions, tell

    def _decide_one(
        self,
        stimulus: TreeStimulus,
        facts: TreeFacts,
        instructions: list[TreeInstruction],
    ) -> bool:
        new_facts, new_instructions = decide(self._state, stimulus)
        # Packed before the state changes: the state must never hold a fact that the journal can't store.
        facts.add(new_facts, stimulus.at_ms)
        for fact in new_facts:
            evolve(self._state, fact)
        instructions.extend(new_instructions)
        return self._inbox_notifier.take_facts(new_facts)
