"""Answers of the creating program to calls that are its own, on their way to the sessions that asked.

An answer is the program's until its session has taken it and the result is durable; only then is it told so.
A host that is lost in between leaves it here, and the next one gets it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.contracts.client_call import ClientAnswer, ClientCall
from sessiontree.contracts.errors import ClientAnswerRefused, ClientCallClosed
from sessiontree.contracts.stimuli import ClientAnswered
from sessiontree.session.instructions import SettleAnswer

if TYPE_CHECKING:
    from sessiontree.runtime.keeper import TreeKeeper
    from sessiontree.runtime.seat import Seat

UNKNOWN = "unknown to this tree"
ANSWERED = "answered already"
CANCELLED = "cancelled"


def waiting_in(keeper: TreeKeeper) -> list[ClientCall]:
    """Return the calls that wait for the program, in the order they were handed over."""
    return [
        ClientCall(client_id, call.session, call.tool, call.arguments, call.expires_at_ms)
        for client_id, call in keeper.state.client_calls.items()
    ]


async def answer(
    keeper: TreeKeeper, client_id: str, given: ClientAnswer, answer_id: str, at_ms: int, *, again: bool
) -> None:
    """Bring an answer to the session that waits for it; it is durable when this returns.

    Args:
        keeper: The tree's.
        client_id: The call.
        given: The answer.
        answer_id: Names the answer.
        at_ms: Now.
        again: Whether this answer may have been taken before, by a supervisor that was lost.

    Raises:
        ClientCallClosed: the call waits for no answer, or for none of this tree.
        ClientAnswerRefused: it can't be the call's result; the call still waits.
    """
    keeper.check_open()
    call = keeper.state.client_calls.get(client_id)
    if call is None:
        await keeper.caught_up()
        ended = keeper.state.client_ends.get(client_id)
        if ended is None or not (again and ended.answer_id == answer_id):
            raise ClientCallClosed(client_id, UNKNOWN if ended is None else ended.how)
        return
    stimulus = ClientAnswered(at_ms, client_id, answer_id, given)
    told = keeper.settling.wait(answer_id)
    keeper.seat_of(call.session).answers[answer_id] = stimulus
    keeper.deliver(call.session, stimulus, f"answer:{client_id}")
    await told


def settle_answer(seat: Seat, settled: SettleAnswer) -> None:
    """Tell who answered what became of it."""
    answered = seat.answers.pop(settled.answer_id, None)
    if answered is None:
        return
    name, answers = answered.client_id, seat.keeper.settling
    if settled.taken:
        answers.settle(settled.answer_id, None)
    elif settled.refusal:
        answers.fail(settled.answer_id, ClientAnswerRefused(name, settled.refusal, settled.field))
    else:
        ended = seat.keeper.state.client_ends.get(name)
        answers.fail(settled.answer_id, ClientCallClosed(name, ANSWERED if ended is None else ended.how))


def refuse_answers(seat: Seat) -> None:
    """Tell everybody who answered a session that has ended."""
    for answer_id, answered in seat.answers.items():
        seat.keeper.settling.fail(answer_id, ClientCallClosed(answered.client_id, CANCELLED))
    seat.answers.clear()
