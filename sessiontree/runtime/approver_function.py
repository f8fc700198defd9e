"""Approver functions: named by ``module:name``, imported where their session runs.

A function takes an :class:`~sessiontree.contracts.approvals.ApprovalRequest` and returns ``"approve"``,
``"deny"`` or ``"escalate"``; one that fails, or answers something else, escalates.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.cancellation import is_cancelled
from sessiontree.contracts.errors import ConfigError, words_of
from sessiontree.contracts.stimuli import ApproverAnswered
from sessiontree.contracts.thread_calls import in_thread
from sessiontree.session.instructions import RunApprover

ANSWERS = ("approve", "deny", "escalate")


def load_approver(path: str) -> Callable[[ApprovalRequest], Any]:
    """Return the function of a path.

    Raises:
        ConfigError: the path is not ``module:name``, cannot be imported, or names no function.
    """
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise ConfigError(f"approver {path!r} must be written module:name")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"approver {path!r} can't be imported: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"approver {path!r}: {module_name} has no function {name!r}")
    return function  # type: ignore[no-any-return]


async def run_approver(path: str, request: ApprovalRequest) -> tuple[str, str]:
    """Return (answer, reason) of an approver function; plain functions run in a thread."""
    try:
        function = load_approver(path)
        if inspect.iscoroutinefunction(function):
            answer = await function(request)
        else:
            answer = await in_thread(function, request)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a failing approver must leave the decision to somebody else
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        return "escalate", f"approver {path} failed: {words_of(error)}"
    if isinstance(answer, str) and answer in ANSWERS:
        return str(answer), f"approver {path}"
    said = repr(answer) if isinstance(answer, str) else type(answer).__name__
    return "escalate", f"approver {path} answered {said} instead of approve, deny or escalate"


async def consult(path: str, asked: RunApprover, session: str, now_ms: Callable[[], int]) -> ApproverAnswered:
    """Return what a session's approver function says to a request, as a stimulus for that session."""
    request = ApprovalRequest(
        asked.request_id,
        asked.requester,
        asked.tool,
        asked.arguments,
        "",
        asked.tier,
        0,
        session,
        asked_by=asked.asked_by,
    )
    answer, reason = await run_approver(path, request)
    return ApproverAnswered(now_ms(), asked.request_id, answer, reason)
