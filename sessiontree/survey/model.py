"""Model: the script that answers for each session of a survey, from its conversation alone.

To the runtime it is a model like any other. Main spawns a Branch per top folder, and puts records into memory
while they work; a Branch spawns a Worker per group of files; a Worker makes one call. A parent takes one page
of the plan at a time: it spawns the children of that page, rests until all have answered, and goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

from pydantic import JsonValue, ValidationError

from sessiontree import (
    AssistantMessage,
    Message,
    ModelError,
    ModelRequest,
    SessionKind,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    script_call,
)
from sessiontree.survey.earlier import MARK, EarlierSurvey, mark_text
from sessiontree.survey.report import render
from sessiontree.survey.source.census import (
    CensusPart,
    Findings,
    Place,
    Totals,
    choose_folder,
    fit_findings,
    merge,
)
from sessiontree.survey.tools import MAX_RECORDS, MAX_RECORDS_PER_FILE, Remembered, SurveyPage

MODEL_NAME = "survey-script"
MAX_FINDINGS_CHARS = 1_000_000
"""Longest text of the findings that a Branch hands up."""
NOTHING_YET = "{}"
"""What a Branch says while it waits: findings of no file."""
FINDINGS_SCHEMA: dict[str, Any] = {"type": "object"}
"""What a parent asks of its children; the parent itself checks that it is :class:`Findings`."""
_PLAN, _SPAWN, _SURVEY, _REMEMBER = "survey_plan", "sessions_spawn", "survey_files", "remember_files"
_FIND, _REMOVE, _WRITE, _STORE = "find_survey", "remove_survey", "write", "memory_store"
_MAX_REMOVALS = 3
_LABEL_CHARS = 80

Reply: TypeAlias = "str | list[str | ToolCall]"
SurveyEnd: TypeAlias = Literal["written", "kept", "failed"]
"""What became of the report. ``kept``: what was in its place stays there; ``failed``: it can't be written."""


class SurveyOrder(CensusPart):
    """What the program asks of Main."""

    name: str
    """What the report calls the workspace."""
    out: str
    """Where the report goes, relative to the workspace."""


class FolderOrder(CensusPart):
    """What Main asks of a Branch: one top folder, ``.`` for the files in the root itself."""

    folder: str
    leave_out: tuple[str, ...]
    """Files that are not surveyed, such as the report itself."""


class SurveyResult(CensusPart):
    """Main's final message: what became of a survey."""

    survey: SurveyEnd
    path: str
    reason: str = ""
    """Why it was not written."""
    report: str = ""
    """The report itself where it was not written."""
    found: Findings
    """Amounts alone, no lists."""
    memory_problem: str = ""
    """Why the survey's mark is not in memory; questions don't know of the survey then."""


def parse_result(text: str) -> SurveyResult | None:
    """Return the result that a message is, None for any other message."""
    try:
        return SurveyResult.model_validate_json(text)
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One tool call and its result."""

    call: ToolCall
    result: ToolResultMessage

    @property
    def status(self) -> str:
        """``ok``, or the envelope's word: ``error``, ``blocked``, ``unknown``, ``pending``."""
        text = self.result.text
        if not self.result.is_error and not text.startswith('{"status":"pending"'):
            return "ok"
        return str(json.loads(text)["status"])

    @property
    def is_denied(self) -> bool:
        """Whether it was refused, not tried."""
        return self.result.is_error and "tier" in json.loads(self.result.text)

    @property
    def reason(self) -> str:
        """Why it failed."""
        envelope = json.loads(self.result.text)
        return str(envelope.get("error") or envelope.get("reason") or envelope)


@dataclass(slots=True)
class ScriptedConversation:
    """What a session of a survey was asked, did, and heard."""

    order: str = ""
    """Its first message."""
    steps: list[ScriptStep] = field(default_factory=list)
    """All calls that have a result, in order."""
    reports: list[str] = field(default_factory=list)
    """What children reported, in order."""
    has_news: bool = False
    """Whether the runtime said something after the last call."""

    def named(self, *tools: str) -> list[ScriptStep]:
        """Return the calls of some tools."""
        return [step for step in self.steps if step.call.name in tools]


def read_conversation(messages: Sequence[Message]) -> ScriptedConversation:
    """Return what messages hold; linear in their number, and no text is looked into."""
    talk = ScriptedConversation()
    open_calls: list[ToolCall] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            open_calls = list(message.tool_calls)
        elif isinstance(message, ToolResultMessage):
            # results are in the order of their calls
            talk.steps.append(ScriptStep(open_calls.pop(0), message))
            talk.has_news = False
        elif isinstance(message, UserMessage):
            if message.origin == "child":
                talk.reports.append(message.text)
            elif message.origin == "notice":
                talk.has_news = True
            else:
                talk.order = talk.order or message.text
    return talk


def reply(request: ModelRequest) -> Reply:
    """Return the next reply of a session of any kind; the function of the survey's model.

    Raises:
        ModelError: the session can't do its work; it fails with this reason.
    """
    talk = read_conversation(request.messages)
    if request.kind is SessionKind.WORKER:
        return _reply_as_worker(talk)
    if request.kind is SessionKind.BRANCH:
        order = FolderOrder.model_validate_json(talk.order)
        found = _gather(talk, order.model_dump(mode="json"), _group_work, NOTHING_YET)
        if not isinstance(found, Findings):
            return found
        return fit_findings(found, MAX_FINDINGS_CHARS).model_dump_json(exclude_defaults=True)
    survey = SurveyOrder.model_validate_json(talk.order)
    work = partial(_plan_folder_work, (survey.out,))
    gathered = _gather(talk, {"leave_out": (survey.out,)}, work, "Waiting for the branches.")
    return _deliver(talk, survey, gathered) if isinstance(gathered, Findings) else gathered


def _reply_as_worker(talk: ScriptedConversation) -> Reply:
    if not talk.steps:
        return [script_call(_SURVEY, paths=json.loads(talk.order))]
    step = talk.steps[-1]
    if step.result.is_error:
        raise ModelError(f"{_SURVEY}: {step.reason}")
    return step.result.text


@dataclass(frozen=True, slots=True)
class _Work:
    """Work for one child."""

    kind: str
    task: str
    first: str
    """Its first path, or its folder."""
    files: int
    meanwhile: tuple[ToolCall, ...] = ()
    """What its parent does while the child works."""

    def spawn(self, number: int) -> ToolCall:
        """Return the call that starts the child; the number makes its label its own."""
        shown = self.first if len(self.first) <= _LABEL_CHARS else f"{self.first[: _LABEL_CHARS - 1]}…"
        label = f"{number} {shown} ({self.count})"
        return script_call(_SPAWN, kind=self.kind, task=self.task, label=label, result_schema=FINDINGS_SCHEMA)

    @property
    def count(self) -> str:
        """Its number of files, in words."""
        return f"{self.files:,} {'file' if self.files == 1 else 'files'}"

    def lost(self, reason: str) -> Findings:
        """Return the findings of files that nobody surveyed: counted, and one problem for all of them."""
        totals = Totals(files=self.files)
        folder = self.first if self.kind == "branch" else choose_folder(self.first)
        problem = Place(path=self.first, text=f"{self.count} not surveyed: {reason}")
        return Findings(totals=totals, unread=self.files, folders={folder: totals}, problems=(problem,))


def _plan_folder_work(leave_out: tuple[str, ...], page: SurveyPage) -> list[_Work]:
    per_file = max(1, min(MAX_RECORDS_PER_FILE, MAX_RECORDS // max(1, page.files)))
    work = []
    for folder, files in page.folders.items():
        task = FolderOrder(folder=folder, leave_out=leave_out).model_dump_json()
        remember = script_call(_REMEMBER, folder=folder, leave_out=list(leave_out), records_per_file=per_file)
        work.append(_Work("branch", task, folder, files, (remember,)))
    return work


def _group_work(page: SurveyPage) -> list[_Work]:
    return [_Work("worker", json.dumps(group), group[0], len(group)) for group in page.groups]


def _gather(
    talk: ScriptedConversation,
    arguments: dict[str, Any],
    work_on: Callable[[SurveyPage], list[_Work]],
    waiting: str,
) -> Reply | Findings:
    """Return what is to be said before all children have answered, then everything they found.

    Raises:
        ModelError: the plan failed, and without it nothing can be done.
    """
    plans = talk.named(_PLAN)
    if not plans:
        return [script_call(_PLAN, **arguments)]
    if plans[-1].result.is_error:
        raise ModelError(f"the plan failed: {plans[-1].reason}")
    pages = [SurveyPage.model_validate_json(step.result.text) for step in plans]
    spawned = talk.named(_SPAWN)
    # Computed again from the conversation: the model has no state, so a resumed session answers as before.
    work = [one for page in pages for one in work_on(page)]
    if len(spawned) < len(work):
        fresh = work[len(spawned) :]
        spawning = [one.spawn(number) for number, one in enumerate(fresh, start=len(spawned) + 1)]
        return [*spawning, *(each for one in fresh for each in one.meanwhile)]
    # Children that were refused never report; waiting for them would be for ever.
    if sum(not step.result.is_error for step in spawned) > len(talk.reports):
        return waiting
    if pages[-1].next is not None:
        return [script_call(_PLAN, after=pages[-1].next, **arguments)]
    # By session: children report in the order in which they end, and not in which they began.
    reports = {one["session"]: one for one in map(json.loads, talk.reports)}
    first = pages[0]
    unseen = Findings(problems=first.problems, problems_dropped=first.problems_dropped, ignored=first.ignored)
    found = [_read_findings(step, reports, one) for step, one in zip(spawned, work, strict=True)]
    return merge([unseen, *found, _count_remembered(talk)])


def _read_findings(step: ScriptStep, reports: dict[str, Any], work: _Work) -> Findings:
    """Return what a child found; of one that failed, that its files were not read."""
    if step.result.is_error:
        return work.lost(f"no session was started: {step.reason}")
    report = reports[json.loads(step.result.text)["session_id"]]
    if report["status"] == "completed" and report.get("output") is not None:
        return Findings.model_validate(report["output"])
    return work.lost(f"session {report['session']} {report['status']}: {report['summary']}")


def _count_remembered(talk: ScriptedConversation) -> Findings:
    """Return how much a session has put into memory itself, and what could not be."""
    steps = talk.named(_REMEMBER)
    done = [Remembered.model_validate_json(one.result.text) for one in steps if not one.result.is_error]
    problems = [
        Place(path=str(one.call.arguments["folder"]), text=f"its files are not all in memory: {one.reason}")
        for one in steps
        if one.result.is_error and not one.is_denied  # a session without memory has nothing to say about it
    ]
    records, dropped = sum(one.records for one in done), sum(one.dropped for one in done)
    return Findings(records=records, records_dropped=dropped, problems=tuple(problems))


def _deliver(talk: ScriptedConversation, order: SurveyOrder, found: Findings) -> Reply:
    """Return Main's next reply once everything is gathered: a step to the report, or the final message.

    Main looks what is in the report's place, has an earlier survey removed, its report and its records in
    one, writes, and marks what this survey left in memory. Where nobody allows the removal, the earlier
    survey stays as it is. After every doubt, such as a call that may have run, it looks again; it never
    writes over anything that it did not see removed.
    """
    step = _choose_next_step(talk, order, found)
    if not isinstance(step, tuple):
        return [step] if isinstance(step, ToolCall) else step
    end, reason = step
    marking = talk.named(_STORE)
    # what can't be marked was never stored
    if not marking and any(not one.is_denied for one in talk.named(_REMEMBER)):
        text = mark_text(order.name, found.records, found.totals.files)
        return [script_call(_STORE, text=text, type="fact", source=MARK)]
    report = "" if end == "written" else render(found, order.name)
    result = SurveyResult(survey=end, path=order.out, reason=reason, report=report, found=found.amounts())
    if marking and marking[-1].status != "ok":
        result = result.model_copy(update={"memory_problem": marking[-1].reason})
    return result.model_dump_json()


def _choose_next_step(
    talk: ScriptedConversation, order: SurveyOrder, found: Findings
) -> str | ToolCall | tuple[SurveyEnd, str]:
    """Return what to say while an approval is out, the next call, or the end and its reason."""
    done = talk.named(_FIND, _REMOVE, _WRITE)
    look, write = script_call(_FIND, path=order.out), partial(script_call, _WRITE, path=order.out)
    if not done:
        return look
    last = done[-1]
    if last.status == "pending" and not talk.has_news:
        return f"Waiting for an answer about {order.out}."
    # Nobody knows whether the call ran, so what is there now is looked at before anything else.
    if last.status in ("unknown", "pending"):
        return look
    if last.call.name == _WRITE:
        return ("written", "") if last.status == "ok" else ("failed", last.reason)
    if last.call.name == _REMOVE and last.status == "ok":
        return write(content=render(found, order.name))
    looked = [step for step in done if step.call.name == _FIND][-1]
    if looked.status != "ok":
        return "failed", looked.reason
    earlier = EarlierSurvey.model_validate_json(looked.result.text)
    if last is not looked:
        return ("kept", last.reason) if last.is_denied and earlier.exists else look
    return _decide_after_look(done, order, earlier) or write(content=render(found, order.name))


def _decide_after_look(
    done: list[ScriptStep], order: SurveyOrder, earlier: EarlierSurvey
) -> ToolCall | tuple[SurveyEnd, str] | None:
    """Return what follows from what is in the report's place; None = the report can be written there."""
    removals = [step for step in done if step.call.name == _REMOVE]
    has_failed = bool(removals) and removals[-1].status == "error"
    is_tried = has_failed or len(removals) >= _MAX_REMOVALS
    if not earlier.exists and (is_tried or not earlier.surveys):
        return None
    if earlier.exists and not earlier.is_report:
        return "kept", f"the file {order.out} is not the report of a survey"
    if any(step.call.name == _WRITE for step in done):
        # writing is one step: what is there now is the whole new report
        return "written", ""
    if is_tried:
        return "kept", removals[-1].reason if has_failed else f"{order.out} was asked for too often"
    if not earlier.surveys:
        return script_call(_REMOVE, path=order.out)
    trees: list[JsonValue] = [one.tree for one in earlier.surveys]
    return script_call(
        _REMOVE, path=order.out, trees=trees, records=sum(one.records for one in earlier.surveys)
    )
