"""The survey's embedded model: a script that answers each kind of session from its conversation alone.

To the runtime it is a model like any other. What it knows of a survey it was told by tools, children and
its order; it keeps nothing between two replies.
"""

from __future__ import annotations

from collections.abc import Callable

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.jsonable import dump_readable
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.messages import AssistantMessage
from sessiontree.models.answers import call, message_of
from sessiontree.models.port import ModelRequest
from sessiontree.survey import conversation
from sessiontree.survey.conversation import ScriptedConversation
from sessiontree.survey.delivery import deliver
from sessiontree.survey.fitting import fitted
from sessiontree.survey.gathering import Gathered, Reply, gather_folders, gather_groups
from sessiontree.survey.words import FolderOrder, GroupOrder, SurveyOrder

MODEL_NAME = "survey-script"
MAX_FINDINGS_CHARS = 1_000_000
"""Longest text of the findings a Branch hands up; half of it, at most, is prints where not all fits."""

_SURVEY = "survey_files"


class SurveyModel:
    """Answers for every session of a survey."""

    name = MODEL_NAME

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the reply of a session of any kind.

        Raises:
            ModelError: the session can't do its work; it fails with this reason.
        """
        talk = conversation.read(request.messages)
        return message_of(_REPLIES[request.kind](talk), request.turn)


def _main(talk: ScriptedConversation) -> Reply:
    order = SurveyOrder.model_validate_json(talk.order)
    gathered = gather_folders(talk, (order.out,))
    return deliver(talk, order, gathered) if isinstance(gathered, Gathered) else gathered


def _branch(talk: ScriptedConversation) -> Reply:
    gathered = gather_groups(talk, FolderOrder.model_validate_json(talk.order))
    if not isinstance(gathered, Gathered):
        return gathered
    return dump_readable(fitted(gathered.findings, MAX_FINDINGS_CHARS).model_dump(mode="json"))


def _worker(talk: ScriptedConversation) -> Reply:
    if not talk.steps:
        order = GroupOrder.model_validate_json(talk.order)
        return [call(_SURVEY, paths=list(order.paths), roots=list(order.roots), window=order.window)]
    surveyed = talk.steps[-1]
    if surveyed.result.is_error:
        raise ModelError(f"{_SURVEY}: {surveyed.reason}")
    return surveyed.result.text


_REPLIES: dict[SessionKind, Callable[[ScriptedConversation], Reply]] = {
    SessionKind.MAIN: _main,
    SessionKind.BRANCH: _branch,
    SessionKind.WORKER: _worker,
}
