"""Short ways to say what tests of the tree say often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from sessiontree.contracts.facts.session_facts import ApproverReplied, ToolGivenUp
from sessiontree.contracts.facts.stimuli import (
    ApprovalAsked,
    ApproverReturned,
    ClientCallDelegated,
    ClientCallWithdrawn,
    ResultOffered,
    TaintReported,
    TreeEvent,
    TroubleReported,
)
from sessiontree.contracts.facts.tree_config import AgentRow, PolicyRow, RemovedTools, ToolRow, TreeConfig
from sessiontree.contracts.facts.tree_facts import ClientCallEnded
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.approvals import (
    ApprovalMode,
    ApprovalQuestion,
    CheckedCall,
    Precedent,
    Rule,
)
from sessiontree.contracts.recorded.cron import CronJob
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.settings.settings import Budget, Limits, MessagePolicy
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.tree.state.protocol import FromSession

MAIN, BRANCH, WORKER = SessionKind.MAIN, SessionKind.BRANCH, SessionKind.WORKER
TOOLS = (
    ToolRow("deploy", (MAIN, BRANCH), "1"),
    ToolRow("owner_only", (MAIN,), "2"),
    ToolRow("read", (MAIN, BRANCH, WORKER), "3"),
    ToolRow("search", (MAIN, BRANCH, WORKER), "4"),
    ToolRow("write", (MAIN, BRANCH), "5"),
)
AGENTS = (
    AgentRow("default", "m", None),
    AgentRow("reader", "m", ("read", "search")),
    AgentRow("writer", "m", ("owner_only", "read", "write")),
    AgentRow("careful", "m", None, "ask", "safe-bin"),
    AgentRow("shut", "m", None, "deny", "paranoid"),
    AgentRow("lead", "m", ("read",), delegates=("deploy", "read", "search")),
    AgentRow("middle", "m", ("read", "search"), delegates=("deploy", "write")),
)

LOOKS = Precedent(True, ("ls",), "")
REMOVES = Precedent(False, ("ls", "rm x"), "")
IN_DOUBT = Precedent(False, (), "what it does is not known")
"""Commands, as far as they are known."""

POLICY = PolicyRow({}, "", (RemovedTools("careful", BRANCH, ("deploy", "write")),))
"""The owner's lists leave careful Branches less than kind and agent would."""


def config(
    *,
    limits: Limits | None = None,
    mode: ApprovalMode = "always",
    rules: tuple[Rule, ...] = (),
    smart_rules: tuple[Rule, ...] = (),
    owns_channel: bool = True,
    budget: Budget | None = None,
    messages: tuple[MessagePolicy, ...] = (),
) -> TreeConfig:
    """Return a configuration with five tools and seven agents."""
    return TreeConfig(
        tree_id="t1",
        workspace="/somewhere",
        package_version="0",
        rules_number=0,
        nonce="00" * 16,
        created_at_ms=0,
        model="m",
        limits=limits or Limits(),
        mode=mode,
        rules=rules,
        smart_rules=smart_rules,
        owns_channel=owns_channel,
        budget=budget,
        tools=TOOLS,
        agents=AGENTS,
        purpose="testing",
        policy=POLICY,
        messages=messages,
    )


def job(**more: Any) -> CronJob:
    """Return a timed job: every minute from the beginning of 1970, a message to Main."""
    empty = CronJob(
        job_id="c1",
        name="",
        text="look around",
        once_ms=None,
        every_ms=60_000,
        anchor_ms=0,
        expression="",
        zone="UTC",
        target="main",
        kind=BRANCH,
        agent=None,
        budget=None,
        ttl_s=None,
        announces=True,
        catch_up="once",
        until_ms=None,
        status="active",
        asked_by=(),
        taint="",
        created_ms=0,
    )
    return replace(empty, **more)


def result(status: str = "completed", summary: str = "done", **more: Any) -> SessionResult[Any]:
    """Return a result."""
    return SessionResult(SessionStatus(status), summary, **more)


def checked(
    key: str, tool: str, arguments: Mapping[str, JsonValue], digest: str = "d", tier: int = 3
) -> CheckedCall:
    """Return a call that was checked."""
    return CheckedCall(key, tool, arguments, digest, tier, repeatable=False)


def question(
    request_id: str,
    session: str,
    tool: str = "deploy",
    arguments: Mapping[str, JsonValue] | None = None,
    digest: str = "d",
    *,
    key: str = "1.0",
    asked_by: tuple[Principal, ...] = (),
) -> ApprovalQuestion:
    """Return a request as it climbs."""
    return ApprovalQuestion(request_id, session, checked(key, tool, arguments or {}, digest), asked_by)


def is_event(stimulus: object, kind: type[TreeEvent]) -> TypeGuard[FromSession]:
    """Whether a stimulus is an event of a kind, sent by a session."""
    return isinstance(stimulus, FromSession) and isinstance(stimulus.event, kind)


def result_offered(at_ms: int, session: str, word: SessionResult[Any], quiet: bool = True) -> FromSession:
    """A session gives its final message."""
    return FromSession(at_ms, session, ResultOffered(word), quiet)


def approval_asked(
    at_ms: int,
    session: str,
    request_id: str,
    call: CheckedCall,
    precedent: Precedent | None = None,
    asked_by: tuple[Principal, ...] = (),
) -> FromSession:
    """A session asks for an approval."""
    return FromSession(at_ms, session, ApprovalAsked(request_id, call, asked_by), precedent=precedent)


def approver_returned(at_ms: int, session: str, request_id: str, answer: str, reason: str) -> FromSession:
    """A session's approver function answers."""
    return FromSession(at_ms, session, ApproverReturned(ApproverReplied(request_id, answer, reason)))


def client_call_delegated(at_ms: int, session: str, client_id: str, expires_at_ms: int) -> FromSession:
    """A session's call ``ask`` is the program's to answer."""
    return FromSession(
        at_ms, session, ClientCallDelegated(client_id, checked("1.0", "ask", {"n": 1}), expires_at_ms)
    )


def question_asked(at_ms: int, session: str, question_id: str, expires_at_ms: int) -> FromSession:
    """A session asks a person."""
    call = checked("1.0", "ask_user", {"questions": [{"question": "Why?"}]})
    return FromSession(at_ms, session, ClientCallDelegated(question_id, call, expires_at_ms, to_person=True))


def client_call_withdrawn(at_ms: int, session: str, client_id: str, how: str, answer_id: str) -> FromSession:
    """A call of the program's has its result."""
    return FromSession(at_ms, session, ClientCallWithdrawn(ClientCallEnded(client_id, how, answer_id)))


def trouble_reported(
    at_ms: int, session: str, tool: str, attempts: int, field: str | None, reason: str
) -> FromSession:
    """A session's model gives a tool up."""
    return FromSession(at_ms, session, TroubleReported(ToolGivenUp(tool, attempts, field, reason)))


def taint_reported(at_ms: int, session: str, source: str) -> FromSession:
    """A session takes in untrusted text."""
    return FromSession(at_ms, session, TaintReported(source))
