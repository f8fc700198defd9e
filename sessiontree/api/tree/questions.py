"""Questions for a person, as programs see and answer them, and as the inbox brings them to a channel."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol

from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.errors import (
    AnswerTooLate,
    EngineLost,
    PermissionDenied,
    SessionTreeError,
    ValidationError,
    describe_error,
)
from sessiontree.contracts.recorded.questions import (
    AnswerGiven,
    QuestionReply,
    QuestionRequest,
    Surface,
    reply_from,
)
from sessiontree.contracts.recorded.senders import Sender, resolve_sender
from sessiontree.contracts.tools.author_errors import report_error
from sessiontree.contracts.tools.thread_calls import is_cancelled
from sessiontree.contracts.values.quick_dataclass import dataclass

_LOG = logging.getLogger("sessiontree")
MAX_TRIES = 16
"""Most times one question is asked on a channel: an answer may not fit it, or come from a stranger."""


class QuestionDesk(Protocol):
    """Where questions wait, and are answered."""

    def note_heeded(self) -> None:
        """Note that the program looks at what waits."""
        ...

    def list_pending_questions(self) -> list[PendingQuestion]:
        """Return the questions that wait for a person, oldest first."""
        ...

    async def answer_question(self, question_id: str, reply: QuestionReply, surface: Surface) -> None:
        """Answer a question by its id; raises as :meth:`PendingQuestion.answer`."""
        ...


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """Questions of one call that wait for a person."""

    question: QuestionRequest
    _desk: QuestionDesk

    async def answer(
        self, *answers: AnswerGiven, sender: Sender | str | None = None, surface: Surface = "program"
    ) -> None:
        """Answer the questions; the answer is durable when this returns.

        Args:
            answers: One for each question: a QuestionAnswer, a text (an option's label, or free text), or a
                sequence of labels.
            sender: Who answers, if the program has several users; None = the program itself.
            surface: Where the person answered, for the journal.

        Raises:
            AnswerTooLate: it was answered in the meantime, expired, or its session stopped.
            ConfigError: an answer has another form, or the surface is unknown.
            PermissionDenied: the sender does not own the tree; the question still waits.
            ValidationError: an answer does not fit its question, which still waits.
        """
        reply = reply_from(self.question.items, answers, resolve_sender(sender))
        await self._desk.answer_question(self.question.question_id, reply, surface)


class Questions:
    """The questions of a tree that wait for a person."""

    def __init__(self, desk: QuestionDesk) -> None:
        self._desk = desk

    def pending(self) -> list[PendingQuestion]:
        """Return the questions that wait for a person, oldest first."""
        self._desk.note_heeded()
        return self._desk.list_pending_questions()


Answering = Callable[[QuestionRequest], Awaitable[QuestionReply | None]]
Submit = Callable[[QuestionReply], Awaitable[None]]
Say = Callable[[str, str], Awaitable[None]]


def can_ask_questions(channel: HumanChannel) -> bool:
    """Whether a channel shows questions; the others leave them to the one above, and to other surfaces."""
    return hasattr(channel, "ask_question") and bool(getattr(channel, "asks", True))


async def ask_on_channel(channel: HumanChannel, question: QuestionRequest, submit: Submit, say: Say) -> None:
    """Ask a question on a channel until an answer is accepted there, or none is given."""
    ask: Answering | None = getattr(channel, "ask_question", None)
    if ask is None or not can_ask_questions(channel):
        return
    for _ in range(MAX_TRIES):
        reply = await _reply_of(ask, question)
        if reply is None:
            return
        try:
            await submit(reply)
        except PermissionDenied:
            continue
        except ValidationError as refused:
            await say(question.asked, str(refused))
            continue
        except AnswerTooLate as closed:
            await say(question.asked, f"the answer to {question.session_id} came too late: {closed}")
        except EngineLost:
            pass
        return


async def _reply_of(ask: Answering, question: QuestionRequest) -> QuestionReply | None:
    """Return a channel's answer; a failure, or a value that is not an answer, leaves the question open."""
    try:
        reply = await ask(question)
    except KeyboardInterrupt:
        _LOG.exception("what asks a person raised KeyboardInterrupt; that ends the event loop it runs on")
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        what = f"the channel, asked a question of session {question.session_id},"
        report_error(what, error, f"the question stays open: {describe_error(error)}")
        return None
    if reply is None or isinstance(reply, QuestionReply):
        return reply
    report_error(
        f"the channel, asked a question of session {question.session_id},",
        SessionTreeError(f"it returned a {type(reply).__name__}, not a QuestionReply"),
        "the question stays open",
    )
    return None


def make_answer_id() -> str:
    """Return the id of a new answer."""
    return secrets.token_hex(16)
