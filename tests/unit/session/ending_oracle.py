"""What a session offers, and when.

OFFER: the final message, while nothing of the session's own is under way; under a pending approval it only
suspends the session, which is the tree's to see to. STOP: once asked to stop, exactly the stop's status, as
soon as all calls have results.
"""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.contracts.facts.stimuli import ResultOffered
from sessiontree.contracts.kinds import SessionKind
from sessiontree.session.instructions import SessionInstruction
from tests.unit.session.call_oracle import CallBooks
from tests.unit.session.judge_oracle import Judge
from tests.unit.session.session_fixtures import sent
from tests.unit.session.turn_oracle import TurnBooks


def judge_ending(
    judge: Judge,
    turns: TurnBooks,
    calls: CallBooks,
    told: Sequence[SessionInstruction],
    *,
    is_nothing: bool,
) -> None:
    """Judge what a step offers; one in which nothing happened need not say it again."""
    offers = [each.result for each in sent(told, ResultOffered)]
    stays = turns.interrupted and turns.stopping is None and turns.spec.kind is not SessionKind.MAIN
    right = all(each.stays is stays for each in sent(told, ResultOffered))
    judge.require(right, "CUT", f"a result is offered that stands for {stays=}")
    stops = turns.stopping is not None
    pending = [call.key for call in calls.unresolved() if stops or not call.is_asking]
    rule = "STOP" if stops else "OFFER"
    judge.require(not (offers and pending), rule, f"a result is offered while {pending} are open")
    ends = stops or (turns.rested is not None and not turns.in_turn)
    expected = int(ends and not pending)
    if is_nothing and not offers:
        return
    judge.require(len(offers) == expected, rule, f"{len(offers)} results are offered instead of {expected}")
    settled = stops or turns.spec.kind is not SessionKind.MAIN
    for offered in offers:
        if turns.stopping is not None:
            right = (str(offered.status), offered.summary) == (turns.stopping.status, turns.stopping.reason)
        else:
            right = (str(offered.status), offered.summary, offered.output) == turns.expected_offer()
        judge.require(right, rule, f"{offered} is not the final message")
        judge.require(
            offered.usage.turns == turns.replies, rule, f"{offered.usage} for {turns.replies} turns"
        )
        made = calls.artifacts if settled else []
        judge.require(list(offered.artifacts) == made, rule, "artifacts are missing or too many")
