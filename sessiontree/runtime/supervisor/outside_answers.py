"""Answers from outside: of the creating program to its calls, of a person to a session's questions.

An answer is delivered to the session that waits for it. It is journaled, and accepted, once the session takes
it; of several answers the first one that the session takes counts.
"""

from __future__ import annotations

from sessiontree.contracts.errors import AnswerTooLate
from sessiontree.contracts.facts.stimuli import ClientAnswered
from sessiontree.contracts.recorded.client_calls import ClientAnswer, ClientCall
from sessiontree.contracts.recorded.questions import QuestionReply, QuestionRequest, check_answers
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.client_tool import refuse_answer
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.runtime.scheduling.live_session import Controller, LiveSession
from sessiontree.session.instructions import SettleAnswer
from sessiontree.tree.report import find_question

UNKNOWN = "unknown to this tree"
ANSWERED = "answered already"
CANCELLED = "cancelled"
_QUESTION_ENDS = {"ok": "answered", ANSWERED: "answered", "timeout": "expired", "aborted": CANCELLED}
"""How a question ended, by the outcome of its call."""


def list_waiting(controller: Controller) -> list[ClientCall]:
    """Return the calls that wait for the program, in the order in which they were handed over."""
    return [call for call in controller.state.client_calls.values() if not call.asked]


def list_questions(controller: Controller) -> list[QuestionRequest]:
    """Return the questions that wait for a person, in the order in which they were asked."""
    state = controller.state
    found = (find_question(state, call_id) for call_id, _ in state.client_calls.items())
    return [question for question in found if question is not None]


async def answer_question(
    controller: Controller,
    question_id: str,
    reply: QuestionReply,
    answer_id: str,
    source: tuple[str, str],
    *,
    again: bool,
) -> None:
    """Deliver a person's answer to the session that asked; it is durable when this returns.

    Args:
        controller: The tree's controller.
        question_id: The id of the question.
        reply: The answers.
        answer_id: The id of the answer.
        source: Who answered, and where.
        again: Whether a supervisor that was lost may already have accepted this answer.

    Raises:
        AnswerTooLate: the question does not wait for an answer, or does not belong to this tree.
        ValidationError: an answer does not fit its question, which still waits.
    """
    question = find_question(controller.state, question_id)
    by, surface = source
    output: JsonValue = None
    if question is not None:
        output = {"answers": check_answers(question_id, question.items, reply.answers)}
    elif controller.state.client_calls.get(question_id) is not None:
        raise AnswerTooLate("question", question_id, UNKNOWN)
    details: JsonValue = {"answered_by": by, "surface": surface}
    given = ClientAnswer(ToolResult(output, details=details), by=by, surface=surface)
    try:
        await _bring(controller, question_id, given, answer_id, again=again)
    except AnswerTooLate as late:
        state = _QUESTION_ENDS.get(late.state, late.state)
        raise AnswerTooLate("question", question_id, state) from late


async def answer_call(
    controller: Controller, client_id: str, given: ClientAnswer, answer_id: str, *, again: bool
) -> None:
    """Deliver an answer to the session that waits for it; it is durable when this returns.

    Args:
        controller: The tree's controller.
        client_id: The id of the call.
        given: The answer.
        answer_id: The id of the answer.
        again: Whether a supervisor that was lost may already have accepted this answer.

    Raises:
        AnswerTooLate: the call does not wait for an answer, or does not belong to this tree.
        ValidationError: the answer can't be the call's result; the call still waits.
    """
    call = controller.state.client_calls.get(client_id)
    if call is not None and call.asked:
        raise AnswerTooLate("client call", client_id, UNKNOWN)
    await _bring(controller, client_id, given, answer_id, again=again)


async def _bring(
    controller: Controller, client_id: str, given: ClientAnswer, answer_id: str, *, again: bool
) -> None:
    controller.check_open()
    call = controller.state.client_calls.get(client_id)
    if call is None:  # Race: it may have ended by an answer of this id that a lost supervisor took
        await controller.wait_until_durable()
        ended = controller.state.client_ends.get(client_id)
        if ended is None or not (again and ended.answer_id == answer_id):
            raise AnswerTooLate("client call", client_id, UNKNOWN if ended is None else ended.how)
        return
    stimulus = ClientAnswered(controller.now_ms(), client_id, answer_id, given)
    told = controller.waiters.settling.wait(answer_id)
    live = controller.ensure_live_session(call.session_id)
    if live.answers is None:
        live.answers = {}
    live.answers[answer_id] = stimulus
    controller.deliver(call.session_id, stimulus, f"answer:{client_id}")
    await told


def settle_answer(live: LiveSession, settled: SettleAnswer) -> None:
    """Report whether an answer was accepted to the callers who gave it."""
    answered = None if live.answers is None else live.answers.pop(settled.answer_id, None)
    if answered is None:
        return
    name, answers = answered.client_id, live.controller.waiters.settling
    if settled.taken:
        answers.settle(settled.answer_id, None)
    elif settled.refusal:
        answers.fail(settled.answer_id, refuse_answer(name, settled.refusal, settled.field))
    else:
        ended = live.controller.state.client_ends.get(name)
        answers.fail(
            settled.answer_id, AnswerTooLate("client call", name, ANSWERED if ended is None else ended.how)
        )


def refuse_answers(live: LiveSession) -> None:
    """Refuse all answers that wait for a session that has ended."""
    for answer_id, answered in (live.answers or {}).items():
        live.controller.waiters.settling.fail(
            answer_id, AnswerTooLate("client call", answered.client_id, CANCELLED)
        )
    live.answers = None
