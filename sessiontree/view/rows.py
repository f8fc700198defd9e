"""The model of a tree as JSON: a whole snapshot, or a delta of what changed since a revision.

Every text in it was made visible and has a bound; none of it is markup. A session is a list of values in the
order of :data:`COLUMNS`; its place in a snapshot's ``rows`` is its row number, which never changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, TypeAlias

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.approvals import ApprovalQuestion
from sessiontree.contracts.recorded.questions import QuestionRequest
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.contracts.values.messages import Usage
from sessiontree.view.differences import find_call_differences
from sessiontree.view.live_tree import LiveTree, OpenRequest
from sessiontree.view.markdown import make_lines_visible
from sessiontree.view.program_panel import FEW, WORDS, ProgramFanOut, ProgramPanel, ProgramStep
from sessiontree.view.session_panel import SessionPanel

VERSION: Final = 1
COLUMNS: Final = (
    "path", "kind", "label", "parent", "state", "why", "call", "turns", "tokens", "cost_usd",
    "began_ms", "ended_ms", "failures", "budget",
)  # fmt: skip
MAX_ARGUMENT_CHARS: Final = 4_000
"""Longest text of one argument of a request; a longer one is cut, and its whole is fetched by reference."""
MAX_PURPOSE_CHARS: Final = 400
MAX_LABEL_CHARS: Final = 80

Json = dict[str, Any]
Argument: TypeAlias = tuple[str, str, bool]


def snapshot(
    tree: LiveTree,
    config: TreeConfig,
    *,
    feed: str,
    can: Collection[str] = (),
    is_live: bool = False,
    is_whole: bool = True,
) -> Json:
    """Return the whole of a tree; O(sessions).

    Args:
        tree: The model.
        config: The tree's configuration.
        feed: Id of the feed, which its deltas name, too.
        can: The verbs by which a viewer may act.
        is_live: Whether a program runs the tree.
        is_whole: Whether all facts were taken in; requests that an earlier part left open are not shown.
    """
    return {
        "kind": "snapshot",
        "version": VERSION,
        "feed": feed,
        "revision": tree.revision,
        "seq": tree.last_seq,
        "at_ms": tree.last_at_ms,
        "tree": {
            "id": config.tree_id,
            "purpose": make_visible(config.purpose[:MAX_PURPOSE_CHARS]),
            "workspace": make_visible(config.workspace),
            "model": make_visible(config.model),
            "created_ms": config.created_at_ms,
            "is_over": tree.is_over,
            "is_live": is_live,
            "is_whole": is_whole,
        },
        "can": sorted(can),
        "totals": count_totals(tree, is_whole=is_whole),
        "columns": COLUMNS,
        "rows": [build_row(session) for session in tree.rows()],
        "approvals": list_approvals(tree) if is_whole else [],
        "questions": list_questions(tree) if is_whole else [],
        "canvases": list_canvases(tree),
    }


def build_delta(
    tree: LiveTree, since: int, *, feed: str, is_live: bool = False, is_whole: bool = True
) -> Json:
    """Return what changed after a revision; O(what changed).

    A viewer that missed deltas gets the newest form of each row once, however often it changed. Requests are
    left out as long as the tree is not whole; a new feed begins when it is.
    """
    changes: Json = {
        "kind": "delta",
        "feed": feed,
        "from": since,
        "revision": tree.revision,
        "seq": tree.last_seq,
        "at_ms": tree.last_at_ms,
        "is_over": tree.is_over,
        "is_live": is_live,
        "totals": count_totals(tree, is_whole=is_whole),
        # a parent is older than its children, so a viewer knows it before them
        "rows": sorted([session.number, build_row(session)] for session in tree.list_rows_since(since)),
    }
    if is_whole and tree.requests_revision > since:
        changes["approvals"] = list_approvals(tree)
    if is_whole and tree.questions_revision > since:
        changes["questions"] = list_questions(tree)
    if tree.canvases_revision > since:
        changes["canvases"] = list_canvases(tree)
    return changes


def count_totals(tree: LiveTree, *, is_whole: bool = True) -> Json:
    """Return the counts of a tree; without requests as long as it is not whole."""
    return {
        "sessions": tree.total,
        "live": tree.live,
        "ended": {status.value: count for status, count in tree.ended.items() if count},
        "requests": tree.open_requests if is_whole else 0,
        "questions": len(tree.questions) if is_whole else 0,
        "tokens": tree.usage.tokens,
        "input_tokens": tree.usage.input_tokens,
        "output_tokens": tree.usage.output_tokens,
        "cost_usd": get_cost(tree.usage),
        "is_cost_known": not tree.usage.unpriced_tokens,
    }


def get_cost(usage: Usage) -> float | None:
    """Return a cost in dollars; None if no price is known."""
    return usage.cost_usd if usage.cost_usd or not usage.unpriced_tokens else None


def build_row(session: SessionPanel) -> list[JsonValue]:
    """Return a session as its row, in the order of :data:`COLUMNS`."""
    calls = session.calls() if not session.is_ended else []
    more = f"+{len(calls) - 1} more: " if len(calls) > 1 else ""
    return [
        session.session_id,
        session.kind.value,
        make_visible(session.label[:MAX_LABEL_CHARS]),
        session.parent_number,
        session.state(),
        session.reason(),
        more + calls[0] if calls else "",
        session.turns,
        session.usage.tokens,
        get_cost(session.usage),
        session.began_ms,
        session.ended_ms,
        session.failures,
        session.budget_left(),
    ]


def build_program_json(panel: ProgramPanel, after: int = 0, most: int = 0) -> Json:
    """Return a program with its open calls, those that ended last, and those that failed last.

    Args:
        panel: The program.
        after: How many of its calls to leave out before those of ``steps``.
        most: Most calls of ``steps``.
    """
    # Those that wait for a person come first.
    waiting = sorted(panel.open.values(), key=lambda step: step.state not in {"approval", "answer"})
    return {
        "key": panel.key,
        "outcome": panel.outcome,
        "words": panel.call_words(),
        "phases": list(panel.phases),
        "lines": sorted((+panel.lines).items()),
        "notes": list(panel.notes),
        "total": len(panel.steps),
        "under_way": len(panel.open),
        "counts": {state: panel.counts[state] for state in ("done", "failed", "lost")},
        "fan_outs": [_build_fan_out(each) for each in list(panel.fan_outs.values())[-FEW:]],
        "open": [_step(step) for step in waiting[:FEW]],
        "last": [_step(step) for step in panel.last],
        "failed": [_step(step) for step in panel.failed],
        "steps": [_step(step) for step in panel.steps[after : after + most]],
    }


def _build_fan_out(given: ProgramFanOut) -> Json:
    return {
        "function": given.function,
        "tasks": given.tasks,
        "is_over": given.not_started is not None,
        "counts": [
            given.running,
            *(given.ended[state] for state in ("done", "failed", "lost")),
            given.left,
        ],
    }


def _step(step: ProgramStep) -> Json:
    return {
        "number": step.number,
        "tool": step.tool,
        "gist": step.gist,
        "line": step.line,
        "state": step.state,
        "words": WORDS[step.state],
        "session": step.session,
        "result": step.result,
        "seq": step.seq,
        "ended_seq": step.ended_seq,
    }


def list_approvals(tree: LiveTree) -> list[Json]:
    """Return the open requests, oldest first."""
    return [_describe_approval(request) for request in tree.requests.values()]


def list_questions(tree: LiveTree) -> list[Json]:
    """Return the questions that wait for a person, oldest first."""
    return [_describe_question(question) for question in tree.questions.values()]


def list_canvases(tree: LiveTree) -> list[Json]:
    """Return which sessions have a canvas, and which of it is shown; its content is fetched by reference.

    ``page`` is another text whenever the page is another one.
    """
    return [
        {
            "session": session,
            "revision": panel.state.revision,
            "page": f"{panel.state.page_revision}.{panel.page_number}",
            "shows": panel.state.shows,
            "title": make_visible(
                panel.state.page.get("path", panel.state.page.get("url", ""))[:MAX_LABEL_CHARS]
            ),
            "is_shown": panel.state.is_shown,
        }
        for session, panel in tree.canvases.items()
    ]


def _describe_question(question: QuestionRequest) -> Json:
    return {
        "id": question.question_id,
        "session": question.session_id,
        "through": find_way_up(question.session_id, question.asked),
        "asked_ms": question.asked_at_ms,
        "expires_ms": question.expires_at_ms,
        "items": [
            {
                "header": make_visible(item.header),
                "text": make_lines_visible(item.question),
                "options": [
                    {"label": make_visible(option.label), "hint": make_lines_visible(option.description)}
                    for option in item.options
                ],
                "is_free": item.allow_free_text,
                "may_choose_many": item.multi_select,
            }
            for item in question.items
        ],
    }


def find_meant_labels(question: QuestionRequest | None, number: int, shown: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of a question's options, given as a viewer sees them; others stay as they are."""
    items = () if question is None else question.items
    options = items[number].options if number < len(items) else ()
    labels = {make_visible(option.label): option.label for option in options}
    return tuple(labels.get(label, label) for label in shown)


def _describe_approval(request: OpenRequest) -> Json:
    fact, question = request.asked, request.asked.question
    call, precedent = question.call, fact.precedent
    return {
        "id": question.request_id,
        "seq": request.seq,
        "session": question.session,
        "through": find_way_up(question.session, request.waits_at),
        "tool": make_visible(call.tool),
        "tier": PermissionTier(call.tier).label,
        "asked_ms": fact.at_ms,
        "expires_ms": fact.expires_at_ms,
        "arguments": [format_argument(name, value) for name, value in call.arguments.items()],
        "diff": find_call_differences(call.tool, call.arguments),
        "covers": _describe_coverage(request),
        "opens": "" if precedent is None else make_visible(precedent.opens),
        "asked_by": _list_askers(question),
    }


def find_way_up(session: str, to: str) -> list[str]:
    """Return the paths from a session up to another one above it; only the session if that is not above."""
    way = [session]
    while to and way[-1] != to and "/" in way[-1]:
        way.append(way[-1].rpartition("/")[0])
    return way


def format_argument(name: str, value: JsonValue, most_chars: int | None = MAX_ARGUMENT_CHARS) -> Argument:
    """Return ``(name, text, whether it is cut)`` of an argument; only a string is not shown as JSON."""
    text = value if isinstance(value, str) else dump_readable(value)
    shown = text[:most_chars]
    return make_visible(name), make_lines_visible(shown), len(shown) < len(text)


def _describe_coverage(request: OpenRequest) -> str:
    precedent = request.asked.precedent
    tool = make_visible(request.asked.question.call.tool)
    if precedent is None:
        return f"every later call of {tool} in this tree"
    if not precedent.shapes:
        return "this call only"
    return "later commands of these shapes: " + make_visible(", ".join(precedent.shapes))


def _list_askers(question: ApprovalQuestion) -> Sequence[str]:
    return [make_visible(str(each.id)) for each in question.asked_by]
