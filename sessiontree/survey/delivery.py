"""Delivery: how Main puts the report in its place, once everything is gathered.

Look what stands there, have an earlier survey removed, its report and its records in one, write, and mark
what this survey left in memory. Where nobody allows the removal the earlier survey stays as it is, and the
new records stay beside the old ones, for the next removal to name both.

After every doubt (a call that may have run, a file that vanished meanwhile) it looks again, and it never
writes over anything it did not see removed.
"""

from __future__ import annotations

from sessiontree.contracts.messages import ToolCall
from sessiontree.models.answers import call
from sessiontree.survey.conversation import ScriptedConversation, ScriptStep
from sessiontree.survey.earlier import EarlierSurvey
from sessiontree.survey.finding import GroupFindings
from sessiontree.survey.gathering import REMEMBER, Gathered, Reply
from sessiontree.survey.mark import MARK, mark_text
from sessiontree.survey.report import ReportMeta, render
from sessiontree.survey.words import End, LastWord, SurveyOrder

FIND = "find_survey"
REMOVE = "remove_survey"
WRITE = "write"
STORE = "memory_store"
_MOST_REMOVALS = 3


def deliver(talk: ScriptedConversation, order: SurveyOrder, gathered: Gathered) -> Reply:
    """Return Main's next reply: a step towards the report in its place, or the last word."""
    reply = _next(talk, order, gathered)
    if not isinstance(reply, LastWord):
        return reply
    marking = talk.named(STORE)
    # what can't be marked was never stored
    stored = any(not step.is_denied for step in talk.named(REMEMBER))
    if stored and not marking:
        text = mark_text(order.name, reply.records, reply.totals.files)
        return [call(STORE, text=text, type="fact", source=MARK)]
    if marking and marking[-1].status != "ok":
        reply = reply.model_copy(update={"memory_problem": marking[-1].reason})
    return reply.model_dump_json()


def _next(talk: ScriptedConversation, order: SurveyOrder, gathered: Gathered) -> Reply | LastWord:
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
        return _removed(done, order, gathered)
    if last.status == "ok":
        return _last_word("written", order, gathered)
    return _last_word("failed", order, gathered, last.reason)


def _found(done: list[ScriptStep], order: SurveyOrder, gathered: Gathered) -> Reply | LastWord:
    last = done[-1]
    if last.status != "ok":
        return _last_word("failed", order, gathered, last.reason)
    found = EarlierSurvey.model_validate_json(last.result.text)
    removals = [step for step in done if step.call.name == REMOVE]
    is_tried = len(removals) >= _MOST_REMOVALS or (bool(removals) and removals[-1].status == "error")
    if not found.exists and (is_tried or not found.surveys):
        return [call(WRITE, path=order.out, content=_report(order, gathered))]
    if found.exists and not found.is_report:
        return _last_word("kept", order, gathered, f"what stands at {order.out} is no report of a survey")
    if any(step.call.name == WRITE for step in done):
        # writing is one step: what stands there now is the whole new report
        return _last_word("written", order, gathered)
    if removals and removals[-1].status == "error":
        return _last_word("kept", order, gathered, removals[-1].reason)
    if len(removals) >= _MOST_REMOVALS:
        return _last_word("kept", order, gathered, f"{order.out} was asked for too often")
    return [_removal(order, found)]


def _removal(order: SurveyOrder, found: EarlierSurvey) -> ToolCall:
    if not found.surveys:
        return call(REMOVE, path=order.out)
    return call(
        REMOVE,
        path=order.out,
        trees=[one.tree for one in found.surveys],
        records=sum(one.records for one in found.surveys),
    )


def _removed(done: list[ScriptStep], order: SurveyOrder, gathered: Gathered) -> Reply | LastWord:
    last = done[-1]
    looked = [step for step in done if step.call.name == FIND]
    if last.status == "ok":
        return [call(WRITE, path=order.out, content=_report(order, gathered))]
    if last.is_denied and EarlierSurvey.model_validate_json(looked[-1].result.text).exists:
        return _last_word("kept", order, gathered, last.reason)
    return [call(FIND, path=order.out)]


def _report(order: SurveyOrder, gathered: Gathered) -> str:
    return render(gathered.findings, ReportMeta(order.name, gathered.ignored))


def _last_word(end: End, order: SurveyOrder, gathered: Gathered, reason: str = "") -> LastWord:
    findings: GroupFindings = gathered.findings
    return LastWord(
        survey=end,
        path=order.out,
        reason=reason,
        report="" if end == "written" else _report(order, gathered),
        totals=findings.totals,
        languages=findings.languages,
        notes=len(findings.notes) + findings.notes_dropped,
        unread=findings.unread,
        problems=len(findings.problems) + findings.problems_dropped,
        records=findings.records,
        records_dropped=findings.records_dropped,
    )
