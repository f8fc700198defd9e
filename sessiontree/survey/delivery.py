"""Delivery: how Main puts the report in its place, once everything is gathered.

Look what stands there, have an earlier report removed, write. After every doubt (a call that may have run, a
file that vanished meanwhile) it looks again, and it never writes over anything it did not see removed.
"""

from __future__ import annotations

from sessiontree.models.answers import call
from sessiontree.survey.conversation import Conversation, Step
from sessiontree.survey.earlier import EarlierSurvey
from sessiontree.survey.finding import GroupFindings
from sessiontree.survey.gathering import Gathered, Reply
from sessiontree.survey.report import ReportMeta, render
from sessiontree.survey.words import End, LastWord, SurveyOrder

FIND = "find_survey"
REMOVE = "remove_survey"
WRITE = "write"
_MOST_REMOVALS = 3


def deliver(talk: Conversation, order: SurveyOrder, gathered: Gathered) -> Reply:
    """Return Main's next reply: a step towards the report in its place, or the last word."""
    done = [step for step in talk.steps if step.call.name in {FIND, REMOVE, WRITE}]
    if not done:
        return [call(FIND, path=order.out)]
    last = done[-1]
    if last.call.name == FIND:
        return _found(done, order, gathered)
    if last.status == "pending" and not talk.has_news:
        return f"Waiting for an answer about {order.out}."
    if last.status in {"unknown", "pending"}:
        return [call(FIND, path=order.out)]
    if last.call.name == REMOVE:
        return _removed(last, order, gathered)
    if last.status == "ok":
        return _last_word("written", order, gathered)
    return _last_word("failed", order, gathered, last.reason)


def _found(done: list[Step], order: SurveyOrder, gathered: Gathered) -> Reply:
    last = done[-1]
    if last.status != "ok":
        return _last_word("failed", order, gathered, last.reason)
    found = EarlierSurvey.model_validate_json(last.result.text)
    if not found.exists:
        return [call(WRITE, path=order.out, content=_report(order, gathered))]
    if not found.is_report:
        return _last_word("kept", order, gathered, f"what stands at {order.out} is no report of a survey")
    if any(step.call.name == WRITE for step in done):
        # writing is one step: what stands there now is the whole new report
        return _last_word("written", order, gathered)
    removals = [step for step in done if step.call.name == REMOVE]
    if removals and removals[-1].status == "error":
        return _last_word("kept", order, gathered, removals[-1].reason)
    if len(removals) >= _MOST_REMOVALS:
        return _last_word("kept", order, gathered, f"{order.out} was asked for too often")
    return [call(REMOVE, path=order.out)]


def _removed(last: Step, order: SurveyOrder, gathered: Gathered) -> Reply:
    if last.status == "ok":
        return [call(WRITE, path=order.out, content=_report(order, gathered))]
    if last.is_denied:
        return _last_word("kept", order, gathered, last.reason)
    return [call(FIND, path=order.out)]


def _report(order: SurveyOrder, gathered: Gathered) -> str:
    return render(gathered.findings, ReportMeta(order.name, gathered.ignored))


def _last_word(end: End, order: SurveyOrder, gathered: Gathered, reason: str = "") -> str:
    findings: GroupFindings = gathered.findings
    word = LastWord(
        survey=end,
        path=order.out,
        reason=reason,
        report="" if end == "written" else _report(order, gathered),
        totals=findings.totals,
        languages=findings.languages,
        notes=len(findings.notes) + findings.notes_dropped,
        unread=findings.unread,
        problems=len(findings.problems) + findings.problems_dropped,
    )
    return word.model_dump_json()
