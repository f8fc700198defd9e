"""How a tool call ends: one outcome for each way, with its message, and nothing thrown.

The third part of dispatch, finalize: results, errors, time-outs, cancellations, and questions for a person.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, Timeout, ToolError, describe_error
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.recorded.programs import MAX_ANSWER_CHARS, is_of_program
from sessiontree.contracts.recorded.results import make_error_message, make_pending_message
from sessiontree.contracts.recorded.tool_inputs import InputNeeded
from sessiontree.contracts.settings.settings import ImageLimits
from sessiontree.contracts.tools.author_errors import add_frames, report_error
from sessiontree.contracts.tools.client_tool import PERSON_ASKED
from sessiontree.contracts.tools.context import CallSignals, SessionRights
from sessiontree.contracts.tools.tool import Tool
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.contracts.values.short_values import SHOWN_CHARS, shorten_progress
from sessiontree.dispatch.images import Pictures
from sessiontree.dispatch.results import (
    CallTimeLimits,
    ImmediateOutcome,
    PreparedCall,
    make_result_message,
    mark_foreign,
)
from sessiontree.dispatch.tool_table import ToolTable


def report_author_error(
    tool: Tool[Any], session: str, what: str, error: BaseException, text: str
) -> list[str]:
    """Show a tool's author what it raised, and return the frames of the author's files."""
    return report_error(f"{what} {tool.name!r} of session {session}", error, text)


class CallOutcomes:
    """Makes the outcomes of one session's calls.

    Args:
        table: The tree's tools.
        rights: The session's rights.
        limits: How long its calls may take.
        now_ms: Returns the tree's time.
        can_ask_person: Whether a session at or above this one has a channel.
    """

    def __init__(
        self,
        table: ToolTable,
        rights: SessionRights,
        limits: CallTimeLimits,
        now_ms: Callable[[], int],
        *,
        can_ask_person: bool,
    ) -> None:
        self._table = table
        self._session_id = rights.session_id
        self._limits = limits
        self.now_ms = now_ms
        """Returns the tree's time."""
        self._can_ask_person = can_ask_person
        self.max_chars = rights.config.max_result_chars
        """Longest text of a result that a model sees."""
        self.pictures = Pictures(rights.config.images, rights.config.context_tokens)
        """Makes images fit a model's request."""

    def make_client_outcome(
        self, key: str, call_id: str, tool: str, answer: ClientAnswer
    ) -> ImmediateOutcome:
        """Return the outcome of a call that the creating program answered; :meth:`fit_images` comes later.

        Raises:
            ValidationError: the answer does not fit the result type of the tool.
            ExecutionError: the answer has parts that the journal can't store.
        """
        result = answer.result
        if result is None:
            return self.make_error_outcome(key, call_id, tool, ExecutionError(answer.failure), "error")
        entry = self._table.get(tool)
        if entry is not None and entry.answers is not None:
            entry.answers.validate(result.output)
        untrusted = False if entry is None else entry.tool.untrusted
        is_answer = is_of_program(key)
        message = make_result_message(
            call_id,
            tool,
            result,
            self.now_ms(),
            max_chars=MAX_ANSWER_CHARS if is_answer else self.max_chars,
            untrusted=untrusted,
            marks=not is_answer,
        )
        return ImmediateOutcome(
            key,
            "ok",
            message,
            result.artifacts,
            untrusted=bool(untrusted or result.untrusted),
            is_json=is_answer and not isinstance(result.output, str),
        )

    async def fit_images(
        self, outcome: ImmediateOutcome, tier: int, narrower: ImageLimits | None
    ) -> ImmediateOutcome:
        """Return an outcome whose images fit a model's request, and narrower limits if there are any."""
        if len(outcome.message.content) == 1:
            return outcome
        harmless = tier == PermissionTier.READ_ONLY
        message = await self.pictures.fit(
            outcome.message, max_chars=self.max_chars, harmless=harmless, narrower=narrower
        )
        return replace(outcome, message=message)

    def make_crash_error(self, prepared: PreparedCall, error: BaseException) -> ImmediateOutcome:
        """Return the outcome of a call whose tool raised an exception that is not a ToolError."""
        tool = prepared.entry.tool
        text = f"{tool.name} failed: {describe_error(error)}"
        frames = report_author_error(tool, self._session_id, "tool", error, text)
        plain = self._mark_untrusted(tool, ExecutionError(text))
        outcome = self.make_error_outcome(prepared.call.key, prepared.provider_id, tool.name, plain, "error")
        message = add_frames(outcome.message, frames)
        return replace(outcome, message=message, untrusted=bool(tool.untrusted))

    def _mark_untrusted(self, tool: Tool[Any], error: ToolError) -> ToolError:
        """Return a tool's error; its text is put between marks if the tool declares it as untrusted."""
        if tool.untrusted is True:
            error.message = mark_foreign(str(error.message), tool.name, self.max_chars // 2)
        return error

    def make_tool_error(
        self, prepared: PreparedCall, error: ToolError, signals: CallSignals
    ) -> ImmediateOutcome:
        """Return the outcome of a ToolError; its fields may hold anything."""
        outcome: Outcome = "denied" if isinstance(error, PermissionDenied) else "error"
        passes = isinstance(error, Timeout) or (isinstance(error, ExecutionError) and error.retryable is True)
        try:
            marked = self._mark_untrusted(prepared.entry.tool, error)
            return self._make_failed_attempt(prepared, marked, outcome, signals, again=passes)
        except (AttributeError, TypeError, ValueError, RecursionError):
            return self.make_crash_error(prepared, error)

    def make_interrupted_outcome(self, prepared: PreparedCall, signals: CallSignals) -> ImmediateOutcome:
        """Return the outcome of a call that was stopped by its deadline or by a cancellation.

        It holds the call's last progress report as ``partial``.
        """
        over_s = time.monotonic() - signals.deadline
        if over_s >= 0:
            timeout = Timeout(round(self._limits.timeout_s(prepared) + over_s, 3), prepared.entry.name)
            return self._make_failed_attempt(prepared, timeout, "timeout", signals, again=True)
        error = ExecutionError("aborted while it ran; it may have done part of its work")
        return self._make_failed_attempt(prepared, error, "aborted", signals, again=False)

    def make_skipped_outcome(self, prepared: PreparedCall) -> ImmediateOutcome:
        """Return the outcome of a call that was cancelled before it began."""
        error = ExecutionError("stopped before its turn came; it did not run")
        return self.make_error_outcome(
            prepared.call.key, prepared.provider_id, prepared.entry.name, error, "skipped"
        )

    def _make_failed_attempt(
        self,
        prepared: PreparedCall,
        error: ToolError,
        outcome: Outcome,
        signals: CallSignals,
        *,
        again: bool,
    ) -> ImmediateOutcome:
        """Return the outcome of a failed attempt: the error, the attempts so far, and the last progress."""
        extra: dict[str, JsonValue] = {} if signals.attempt == 1 else {"attempts": signals.attempt}
        if signals.partial is not None and outcome in {"timeout", "aborted"}:
            partial = shorten_progress(signals.partial, min(SHOWN_CHARS, self.max_chars // 2))
            if prepared.entry.tool.untrusted is True:
                partial = mark_foreign(dump_readable(partial), prepared.entry.name, self.max_chars // 2)
            extra["partial"] = partial
        name, at_ms = prepared.entry.name, self.now_ms()
        message = make_error_message(
            prepared.provider_id, name, error, at_ms, extra=extra, max_chars=self.max_chars
        )
        tool = prepared.entry.tool
        may = again and prepared.call.repeatable and (tool.retry is not None or isinstance(error, Timeout))
        return ImmediateOutcome(
            prepared.call.key, outcome, message, again=may, untrusted=bool(tool.untrusted)
        )

    def ask_for_input(
        self, prepared: PreparedCall, needed: InputNeeded, signals: CallSignals
    ) -> ImmediateOutcome:
        """Return the outcome of a call that needs a person's answers, or that nobody can answer."""
        if not self._can_ask_person:
            return self.make_unasked_outcome(prepared, prepared.provider_id)
        try:
            wanted = needed.to_input()
        except ExecutionError as error:
            return self.make_tool_error(prepared, error, signals)
        name = prepared.entry.name
        message = make_pending_message(prepared.provider_id, name, PERSON_ASKED, "", self.now_ms())
        return ImmediateOutcome(prepared.call.key, "pending", message, wanted=wanted)

    def make_unasked_outcome(self, prepared: PreparedCall, call_id: str) -> ImmediateOutcome:
        """Return the outcome of a question where no session has a channel."""
        error = ExecutionError(
            "nobody can be asked: no session at or above this one has a channel; decide yourself, and say "
            "what you assumed"
        )
        return self.make_error_outcome(prepared.call.key, call_id, prepared.call.tool, error, "error")

    def make_blocked_outcome(
        self, key: str, call_id: str, tool: Tool[Any], tier: PermissionTier, reason: str
    ) -> ImmediateOutcome:
        """Return the outcome of a call of a tier that may not be made."""
        error = PermissionDenied(tier, reason, by_policy=True)
        return self.make_error_outcome(key, call_id, tool.name, error, "denied")

    def make_error_outcome(
        self, key: str, call_id: str, tool: str, error: ToolError, outcome: Outcome
    ) -> ImmediateOutcome:
        """Return the outcome of a call that failed."""
        message = make_error_message(call_id, tool, error, self.now_ms(), max_chars=self.max_chars)
        return ImmediateOutcome(key, outcome, message)
