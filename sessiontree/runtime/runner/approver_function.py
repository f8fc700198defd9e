"""Approver functions: named by ``module:name``, imported in the process that runs their session.

A function takes an :class:`~sessiontree.contracts.recorded.approvals.ApprovalRequest` and returns
``"approve"``, ``"deny"`` or ``"escalate"``. If it raises or returns anything else, the request escalates.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sessiontree.contracts.errors import ConfigError, describe_error
from sessiontree.contracts.facts.session_facts import ApproverReplied
from sessiontree.contracts.facts.stimuli import ApproverAnswered
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.approvals import ApprovalRequest
from sessiontree.contracts.tools.author_errors import report_error
from sessiontree.contracts.tools.thread_calls import is_cancelled, run_in_thread
from sessiontree.interpreter.import_guard import import_for_the_program
from sessiontree.session.instructions import RunApprover

if TYPE_CHECKING:  # programs load this file to check an approver's name, and run no session
    from sessiontree.runtime.runner.calls.hosted_session import HostedSession

ANSWERS = ("approve", "deny", "escalate")


def load_approver(path: str) -> Callable[[ApprovalRequest], Any]:
    """Return the function that a path names.

    Raises:
        ConfigError: the path is not ``module:name``, cannot be imported, or names no function.
    """
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise ConfigError(f"approver {path!r} is not of the form module:name; give one such as 'rules:judge'")
    try:
        module = import_for_the_program(module_name)
    except ImportError as error:
        raise ConfigError(
            f"approver {path!r}: module {module_name!r} can't be imported: {error}; check its name"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(
            f"approver {path!r}: module {module_name!r} has no function {name!r}; check its name"
        )
    return function  # type: ignore[no-any-return]


async def run_approver(path: str, request: ApprovalRequest) -> tuple[str, str]:
    """Run an approver function and return its answer and a reason; a plain function runs in a thread."""
    try:
        function = load_approver(path)
        if inspect.iscoroutinefunction(function):
            answer = await function(request)
        else:
            answer = await run_in_thread(function, request)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an approver that fails leaves the decision to the next one
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        reason = f"approver {path} failed: {describe_error(error)}"
        report_error(f"approver {path!r} of session {request.asked}", error, reason)
        return "escalate", reason
    if isinstance(answer, str) and answer in ANSWERS:
        return str(answer), f"approver {path}"
    said = repr(answer) if isinstance(answer, str) else type(answer).__name__
    return "escalate", f"approver {path} answered {said} instead of approve, deny or escalate"


class SessionApprover:
    """Runs the approver function of one session.

    Args:
        session: The session on this host.
        path: Path of the session.
    """

    def __init__(self, session: HostedSession, path: str) -> None:
        self._session = session
        self._path = path

    def ask(self, asked: RunApprover) -> None:
        """Run the function on a request; its answer comes as a stimulus."""
        self._session.tasks.begin(partial(self._consult, asked))

    async def _consult(self, asked: RunApprover) -> None:
        session, question, call = self._session, asked.question, asked.question.call
        request = ApprovalRequest(
            question.request_id,
            question.session,
            call.tool,
            call.arguments,
            "",
            PermissionTier(call.tier).label,
            0,
            self._path,
            asked_by=question.asked_by,
        )
        answer, reason = await run_approver(session.state.spec.approver or "", request)
        replied = ApproverReplied(question.request_id, answer, reason)
        session.queue.post(f"approver:{question.request_id}", ApproverAnswered(session.now_ms(), replied))
