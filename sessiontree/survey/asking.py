"""Asking: the embedded model that answers a question from what surveys left in memory.

Search, look where the best places stand now, read them, answer. To the runtime it is a model like any other;
what it knows it was told by tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.messages import AssistantMessage, ToolCall, ToolResultMessage
from sessiontree.models.answers import call, message_of
from sessiontree.models.port import ModelRequest
from sessiontree.survey import conversation
from sessiontree.survey.answer import Answer, AnswerPlace, AskOrder
from sessiontree.survey.conversation import ScriptedConversation, ScriptStep
from sessiontree.survey.earlier import EarlierSurvey
from sessiontree.survey.entry import summary_of
from sessiontree.survey.gathering import Reply
from sessiontree.survey.ignored import REPORT_NAME
from sessiontree.survey.places import CheckedPlaces, PresentPlace
from sessiontree.survey.question import Question, queries_of, question_of
from sessiontree.survey.ranking import RankedPlace, ranked
from sessiontree.survey.recalled import found_in

MODEL_NAME = "ask-script"
HITS_PER_QUERY = 50
EXCERPT_LINES = 6
MAX_LINE_CHARS = 160
_SPARE = 3
"""Places looked at for each one wanted: some are gone, or the same as another."""
_WORST = 0.35
"""What is worth less than this share of the best place is no answer."""
_FIND, _SEARCH, _CHECK, _READ = "find_survey", "memory_search", "check_places", "read"


class QuestionModel:
    """Answers for the one session of a question."""

    name = MODEL_NAME
    reads_details = True
    """Where records come from and what they scored stands in full only there."""

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return Main's reply.

        Raises:
            ModelError: memory can't be searched; the session fails with this reason.
        """
        return message_of(_reply(conversation.read(request.messages)), request.turn)


def _reply(talk: ScriptedConversation) -> Reply:
    order = AskOrder.model_validate_json(talk.order)
    question = question_of(order.question)
    if not talk.steps:
        return [call(_FIND, path=REPORT_NAME), *map(_search, queries_of(question))]
    surveys = EarlierSurvey.model_validate_json(_result_of(talk.steps[0]).text)
    if surveys.memory_problem:
        raise ModelError(surveys.memory_problem)
    outdated = frozenset(one.tree for one in surveys.surveys[:-1])
    best = _best(talk, question, outdated)[: order.limit * _SPARE]
    if not best:
        return Answer(surveyed=bool(surveys.surveys)).model_dump_json()
    checks = talk.named(_CHECK)
    if not checks:
        return [_check([one for _, one in best])]
    present = CheckedPlaces.model_validate_json(_result_of(checks[0]).text).places
    places = _places(best, present, order.limit)
    reads = talk.named(_READ)
    if places and not reads:
        return [call(_READ, path=one.path, offset=one.first, limit=_lines_shown(one)) for one in places]
    shown = [
        one.model_copy(update={"excerpt": _excerpt(one, step)})
        for one, step in zip(places, reads, strict=True)
    ]
    gone = sum(one is None for one in present)
    return Answer(surveyed=True, places=tuple(shown), gone=gone).model_dump_json()


def _search(query: str) -> ToolCall:
    return call(_SEARCH, query=query, max_results=HITS_PER_QUERY, types=["free"])


def _result_of(step: ScriptStep) -> ToolResultMessage:
    if step.result.is_error:
        raise ModelError(f"{step.call.name}: {step.reason}")
    return step.result


def _best(
    talk: ScriptedConversation, question: Question, outdated: frozenset[str]
) -> list[tuple[float, RankedPlace]]:
    """Return what the searches found, best first, without what is worth far less than the best."""
    found: dict[tuple[str, str], RankedPlace] = {}
    whole, *parts = talk.named(_SEARCH)
    for one in found_in(_result_of(whole), outdated):
        found.setdefault((one.source, one.text), one)
    for step in parts:
        for one in found_in(_result_of(step), outdated):
            # what memory thinks of a single word says nothing of the whole question
            found.setdefault((one.source, one.text), replace(one, score=0.0))
    places = ranked(found.values(), question)
    return [(worth, one) for worth, one in places if worth >= _WORST * places[0][0]]


def _check(found: Sequence[RankedPlace]) -> ToolCall:
    return call(
        _CHECK,
        places=[{"path": one.path, "kind": one.kind, "name": one.name, "first": one.first} for one in found],
    )


def _places(
    best: Sequence[tuple[float, RankedPlace]], present: Sequence[PresentPlace | None], limit: int
) -> list[AnswerPlace]:
    """Return the best places that are there now, each once however often it is remembered."""
    places: dict[tuple[str, str, int], AnswerPlace] = {}
    for (worth, one), now in zip(best, present, strict=True):
        if now is None:
            continue
        place = AnswerPlace(
            path=one.path,
            first=now.first,
            last=now.last,
            kind=one.kind,
            name=one.name,
            summary=summary_of(now.text),
            score=round(worth, 3),
            changed=now.text != one.text or now.last - now.first != one.last - one.first,
        )
        known = places.get((one.path, one.name, now.first))
        # of several surveys the one that still fits speaks for the place
        if known is None or (known.changed and not place.changed):
            places[one.path, one.name, now.first] = place
    return list(places.values())[:limit]


def _lines_shown(place: AnswerPlace) -> int:
    return min(EXCERPT_LINES, place.last - place.first + 1)


def _excerpt(place: AnswerPlace, step: ScriptStep) -> tuple[str, ...]:
    """Return the first lines of a place as they were read; none where they could not be."""
    if step.result.is_error:
        return ()
    lines = step.result.text.split("\n")[: _lines_shown(place)]
    return tuple(line[:MAX_LINE_CHARS] for line in lines)
