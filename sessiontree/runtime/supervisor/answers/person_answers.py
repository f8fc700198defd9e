"""What waits for a person or for the creating program, and their answers."""

from __future__ import annotations

from sessiontree.contracts.errors import AnswerTooLate
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.client_calls import ClientAnswer, ClientCall
from sessiontree.contracts.recorded.questions import QuestionReply, QuestionRequest
from sessiontree.contracts.recorded.senders import resolve_asker
from sessiontree.runtime.supervisor.outside_answers import (
    answer_call,
    answer_question,
    list_questions,
    list_waiting,
)
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.transport.supervisor_api import PersonApi
from sessiontree.tree.report import show_request
from sessiontree.tree.state import protocol as tree_stimuli


class PersonAnswers(PersonApi):
    """Answers for people and for the creating program."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def decide(
        self,
        tree_id: str,
        request_id: str,
        answer: ApprovalAnswer,
        by: str = "person",
        again: bool = False,
        surface: str = "program",
    ) -> None:
        """Answer an approval request; ``again`` as in :meth:`send`.

        Raises:
            AnswerTooLate: it was decided before, or is of no use any more: the session that asked was
                stopped before the yes was durable.
            PermissionDenied: whoever answered is not an owner; the request still waits.
        """
        controller = self._supervisor.tree(tree_id)
        asker = None
        if answer.sender is not None:
            asker = resolve_asker(answer.sender, controller.config.owners)
            by = asker.id
        decided = tree_stimuli.Decided(
            controller.now_ms(), request_id, answer.approve, answer.always, by, answer.reason, asker, surface
        )
        request = controller.state.requests.get(request_id)
        try:
            await self._decide(tree_id, decided)
        except AnswerTooLate as closed:
            if not again or closed.state != ("approved" if answer.approve else "denied"):
                raise
        asker_node = None if request is None else controller.state.find_live_session(request.question.session)
        if answer.approve and request is not None and (asker_node is None or asker_node.stop is not None):
            raise AnswerTooLate("approval", request_id, "cancelled")

    async def lift_denial(self, tree_id: str, request_id: str, by: str = "person") -> None:
        """Lift a person's denial of a request.

        Raises:
            AnswerTooLate: no denial of this request holds.
        """
        asked = tree_stimuli.LiftAsked(self._supervisor.tree(tree_id).now_ms(), request_id, by)
        for instruction in await self._supervisor.tree(tree_id).settle(asked, f"lift:{request_id}"):
            if isinstance(instruction, tree_stimuli.RefuseDecision):
                raise instruction.error

    async def answer_question(
        self,
        tree_id: str,
        question_id: str,
        reply: QuestionReply,
        answer_id: str,
        by: str = "person",
        again: bool = False,
        surface: str = "program",
    ) -> None:
        """Answer a question for a person; ``again`` as in :meth:`send`.

        Raises:
            AnswerTooLate: it was answered before, expired, or its session stopped.
            PermissionDenied: whoever answered is not an owner; the question still waits.
            ValidationError: an answer does not fit its question, which still waits.
        """
        controller = self._supervisor.tree(tree_id)
        if reply.sender is not None:
            asker = resolve_asker(reply.sender, controller.config.owners)
            by = asker.id
            if not asker.is_owner:
                refused = tree_stimuli.Decided(
                    controller.now_ms(), question_id, False, False, by, "", asker, surface
                )
                await self._decide(tree_id, refused)
        await answer_question(controller, question_id, reply, answer_id, (by, surface), again=again)

    async def answer(
        self, tree_id: str, client_id: str, answer: ClientAnswer, answer_id: str, again: bool = False
    ) -> None:
        """Answer a call of a client tool; ``again`` as in :meth:`send`.

        Raises:
            AnswerTooLate: it does not wait for an answer, or not in this tree.
            ValidationError: the answer can't be its result; it still waits.
        """
        controller = self._supervisor.tree(tree_id)
        await answer_call(controller, client_id, answer, answer_id, again=again)

    async def pending(self, tree_id: str) -> list[ApprovalRequest]:
        """Return the requests that wait for a person, oldest first."""
        state = self._supervisor.tree(tree_id).state
        requests = [show_request(state, request_id) for request_id, _ in state.requests.items()]
        return [request for request in requests if request is not None]

    async def shown(self, tree_id: str, request_id: str) -> ApprovalRequest | None:
        """Return a request that waits for a person; None = it does not wait, or not any more."""
        return show_request(self._supervisor.tree(tree_id).state, request_id)

    async def list_pending_questions(self, tree_id: str) -> list[QuestionRequest]:
        """Return the questions that wait for a person, oldest first."""
        return list_questions(self._supervisor.tree(tree_id))

    async def client_calls(self, tree_id: str) -> list[ClientCall]:
        """Return the calls that wait for the creating program, in the order they were handed over."""
        return list_waiting(self._supervisor.tree(tree_id))

    async def _decide(self, tree_id: str, decided: tree_stimuli.Decided) -> None:
        cause = f"decision:{decided.request_id}"
        for instruction in await self._supervisor.tree(tree_id).settle(decided, cause):
            if isinstance(instruction, tree_stimuli.RefuseDecision):
                raise instruction.error
