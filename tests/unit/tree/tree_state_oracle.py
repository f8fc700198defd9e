"""The state of a tree as a JSON value, and back, for tests that compare or copy states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.approvals import ApprovalQuestion, CheckedCall
from sessiontree.contracts.recorded.client_calls import ClientCall
from sessiontree.contracts.recorded.codec import from_wire, to_wire
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.values.messages import Usage
from sessiontree.tree.state.budgets import open_account
from sessiontree.tree.state.canvas_state import CanvasState, CanvasSurface
from sessiontree.tree.state.evolve import (
    compute_allowed_tools,
    index_client_call,
    index_live,
    index_request,
    set_request_alarm,
    set_session_alarms,
)
from sessiontree.tree.state.state import (
    ClosedCall,
    JobState,
    Post,
    Request,
    RunNote,
    Session,
    Stop,
    TreeState,
    VisionAnswers,
)


def snapshot(state: TreeState) -> dict[str, Any]:
    """Return everything the state holds, as JSON; what can be made from the rest is left out.

    Lists keep their order: sessions by spawn, posts and requests by age. O(size of the tree).
    """
    return {
        "config": None if state.config is None else to_wire(state.config),
        "nowMs": state.now_ms,
        "sessions": [_session_to_wire(session) for session in state.sessions.values()],
        "used": {name: dict(account.used) for name, account in state.accounts.items()},
        "requests": [_request_to_wire(request) for request in state.requests.values()],
        "decisions": dict(state.decisions.items()),
        "clientCalls": [
            [call.call_id, call.session_id, call.tool, dict(call.arguments), call.expires_at_ms]
            for call in state.client_calls.values()
        ],
        "clientEnds": [[name, *ended] for name, ended in state.client_ends.items()],
        "posts": [[post_id, post.session, to_wire(post.mail)] for post_id, post in state.posts.items()],
        "sent": [[*key, to] for key, to in state.sent.items()],
        "denied": [[digest, session] for (digest, session), _ in state.denied.items()],
        "denials": [to_wire(denial) for denial in state.denials.values()],
        "always": [tool for tool, _ in state.always.items()],
        "canvases": {name: _canvas_to_wire(canvas) for name, canvas in state.canvases.items()},
        "visions": {
            name: ([to_wire(each) for each in book.answers], asdict(book.usage))
            for name, book in state.visions.items()
        },
        "changes": [to_wire(kept) for kept in state.changes.values()],
        "settled": dict(state.settled.items()),
        "jobsMade": state.jobs_made,
        "jobs": [
            [
                to_wire(known.job),
                known.since_ms,
                known.runs,
                known.skipped,
                [list(note) for note in known.notes],
            ]
            for known in state.jobs.values()
        ],
        "jobKeys": {key: list(value) for key, value in state.job_keys.items()},
        "jobRuns": dict(state.job_runs.items()),
    }


def restore(value: Mapping[str, Any]) -> TreeState:
    """Return the state of a snapshot; it behaves as the one the snapshot was taken of.

    Raises:
        KeyError: a member is missing.
    """
    state = TreeState(now_ms=value["nowMs"])
    if value["config"] is not None:
        state.config = from_wire(value["config"])
        state.allowed = compute_allowed_tools(state.config)
    for wire in value["sessions"]:
        _restore_session(state, wire, value["used"])
    for wire in value["requests"]:
        request = _request_from_wire(wire)
        index_request(state, request)
        set_request_alarm(state, request)
    for request_id, decision in value["decisions"].items():
        state.decisions.put(request_id, decision)
    _restore_client_calls(state, value)
    _restore_sent(state, value)
    for post_id, session, wire in value["posts"]:
        state.posts.put(post_id, Post(session, from_wire(wire)))
        state.owed_to.add(session, post_id)
        owner = state.sessions.open(session)
        if owner is not None:
            owner.owed += 1
    _restore_denials(state, value)
    for tool in value["always"]:
        state.always.put(tool, True)
    _restore_rest(state, value)
    return state


def _restore_rest(state: TreeState, value: Mapping[str, Any]) -> None:
    for name, wire in value["canvases"].items():
        surfaces = {key: CanvasSurface(**surface) for key, surface in wire["surfaces"].items()}
        canvas = CanvasState(**{**wire, "surfaces": surfaces, "keys": tuple(wire["keys"])})
        state.canvases.put(name, canvas)
    for name, (answers, usage) in value["visions"].items():
        state.visions.put(name, VisionAnswers(tuple(from_wire(wire) for wire in answers), Usage(**usage)))
    for wire in value["changes"]:
        kept = from_wire(wire)
        state.changes.put(kept.session, kept)
    for name, settled in value["settled"].items():
        state.settled.put(name, settled)
    state.jobs_made = value["jobsMade"]
    for wire, since_ms, runs, skipped, notes in value["jobs"]:
        job = from_wire(wire)
        known = JobState(job, since_ms, runs, skipped, tuple(RunNote(*note) for note in notes))
        state.jobs.put(job.job_id, known)
    for key, found in value["jobKeys"].items():
        state.job_keys.put(key, tuple(found))
    for key, announces in value["jobRuns"].items():
        state.job_runs.put(key, announces)


def _canvas_to_wire(canvas: CanvasState) -> dict[str, Any]:
    return {
        "revision": canvas.revision,
        "page_revision": canvas.page_revision,
        "is_shown": canvas.is_shown,
        "page": dict(canvas.page),
        "surfaces": {name: surface.to_json() for name, surface in canvas.surfaces.items()},
        "keys": list(canvas.keys),
    }


def _restore_denials(state: TreeState, value: Mapping[str, Any]) -> None:
    for digest, session in value["denied"]:
        state.denied.put((digest, session), True)
    for wire in value["denials"]:
        denial = from_wire(wire)
        state.denials.put(denial.request_id, denial)


def _restore_sent(state: TreeState, value: Mapping[str, Any]) -> None:
    for sender, key, to in value["sent"]:
        state.sent.put((sender, key), to)


def _restore_client_calls(state: TreeState, value: Mapping[str, Any]) -> None:
    for call in value["clientCalls"]:
        index_client_call(state, ClientCall(*call))
    for name, *ended in value["clientEnds"]:
        state.client_ends.put(name, ClosedCall(*ended))


def _restore_session(state: TreeState, wire: Mapping[str, Any], used: Mapping[str, dict[str, int]]) -> None:
    session = _session_from_wire(wire)
    spec = session.spec
    name = spec.session_id
    state.sessions.put(name, session)
    state.total += 1
    if spec.parent is not None and spec.key is not None:
        state.keys.put((spec.parent, spec.key), name)
    if name in used and spec.budget is not None:
        parent = state.find_parent(session)
        above = None if parent is None else state.accounts.get(parent.account)
        account = open_account(name, spec.budget, above, session.spawned_at_ms)
        account.used = dict(used[name])
        account.is_closed = not session.is_live
        state.accounts.put(name, account)
    if session.is_live:
        index_live(state, session)
        set_session_alarms(state, session)


def _session_to_wire(session: Session) -> dict[str, Any]:
    return {
        "spec": to_wire(session.spec),
        "account": session.account,
        "spawnedAtMs": session.spawned_at_ms,
        "status": session.status.value,
        "branches": session.branches,
        "workers": session.workers,
        "posted": session.posted,
        "held": None if session.held is None else session.held.to_wire(),
        "isQuiet": session.is_quiet,
        "isAwaited": session.is_awaited,
        "stop": None if session.stop is None else [session.stop.status.value, *session.stop[1:]],
        "result": None if session.result is None else session.result.to_wire(),
        "wasForced": session.was_forced,
        "leftovers": session.leftovers,
        "expiresAtMs": session.expires_at_ms,
        "endedAtMs": session.ended_at_ms,
        "usage": session.usage.to_wire(),
        "taint": session.taint,
        "batch": session.batch,
        "joined": session.joined,
        "reporting": sorted(session.reporting.items()),
    }


def _session_from_wire(wire: Mapping[str, Any]) -> Session:
    spec: SessionSpec = from_wire(wire["spec"])
    stop = wire["stop"]
    return Session(
        spec,
        wire["account"],
        wire["spawnedAtMs"],
        SessionStatus(wire["status"]),
        branches=wire["branches"],
        workers=wire["workers"],
        posted=wire["posted"],
        held=None if wire["held"] is None else SessionResult.from_wire(wire["held"]),
        is_quiet=wire["isQuiet"],
        is_awaited=wire.get("isAwaited", False),
        stop=None if stop is None else Stop(SessionStatus(stop[0]), *stop[1:]),
        result=None if wire["result"] is None else SessionResult.from_wire(wire["result"]),
        was_forced=wire["wasForced"],
        leftovers=wire["leftovers"],
        expires_at_ms=wire["expiresAtMs"],
        ended_at_ms=wire["endedAtMs"],
        usage=Usage.from_wire(wire["usage"]),
        taint=wire.get("taint", ""),
        batch=wire["batch"],
        joined=wire["joined"],
        reporting=dict(wire["reporting"]),
    )


def _request_to_wire(request: Request) -> dict[str, Any]:
    question, call = request.question, request.question.call
    return {
        "requestId": question.request_id,
        "session": question.session,
        "key": call.key,
        "tool": call.tool,
        "arguments": dict(call.arguments),
        "digest": call.digest,
        "tier": call.tier,
        "expiresAtMs": request.expires_at_ms,
        "restsAt": request.rests_at,
        "how": request.how,
        "precedent": None if request.precedent is None else to_wire(request.precedent),
        "askedBy": [to_wire(asker) for asker in question.asked_by],
    }


def _request_from_wire(wire: Mapping[str, Any]) -> Request:
    call = CheckedCall(
        wire["key"], wire["tool"], wire["arguments"], wire["digest"], wire["tier"], repeatable=False
    )
    asked_by = tuple(from_wire(asker) for asker in wire["askedBy"])
    return Request(
        ApprovalQuestion(wire["requestId"], wire["session"], call, asked_by),
        wire["expiresAtMs"],
        wire["restsAt"],
        wire["how"],
        None if wire["precedent"] is None else from_wire(wire["precedent"]),
    )
