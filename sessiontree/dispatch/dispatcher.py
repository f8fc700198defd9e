"""The path of every tool call: prepare → (approval and intent, decided elsewhere) → execute → finalize.

The order within prepare is fixed: name, and whether the session holds it → spellings → coercion →
validation → before-hooks → validation of what they changed → policy → tier. Nothing calls a tool except
through this class. Long because every check of a call and every way in which it ends has its place here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from threading import current_thread, main_thread
from typing import Any, Final

from sessiontree.contracts.errors import (
    ExecutionError,
    PermissionDenied,
    Timeout,
    ToolError,
    ValidationError,
    describe_error,
)
from sessiontree.contracts.handles.protection import Protection
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.approvals import CheckedCall, RejectedCall
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.recorded.programs import MAX_ANSWER_CHARS, is_of_program
from sessiontree.contracts.recorded.results import (
    make_blocked_message,
    make_error_message,
    make_pending_message,
)
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.recorded.tool_inputs import InputNeeded
from sessiontree.contracts.tools.author_errors import add_frames, report_error
from sessiontree.contracts.tools.client_tool import PERSON_ASKED
from sessiontree.contracts.tools.context import CallSignals, SessionRights, ToolContext
from sessiontree.contracts.tools.hooks import CalledTool, HookContext
from sessiontree.contracts.tools.thread_calls import is_cancelled
from sessiontree.contracts.tools.tool import Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue, compute_digest, dump_readable, to_json_value
from sessiontree.contracts.values.messages import ToolCall
from sessiontree.contracts.values.short_values import SHOWN_CHARS, shorten_progress
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.dispatch.hook_chain import HookChain
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.images import Pictures
from sessiontree.dispatch.results import ImmediateOutcome, PreparedCall, make_result_message, mark_foreign
from sessiontree.dispatch.tool_table import ToolEntry, ToolTable
from sessiontree.policy.compiled import SessionPolicy
from sessiontree.policy.steps import OWNERS_ALONE

_READ_ONLY: Final = PermissionTier.READ_ONLY
_UNKNOWN_PLACE: Final = frozenset({"\0"})
"""Stands for what a call would change that can't tell. It makes the call Elevated and allows no place."""
MAX_UNREAD_SHOWN = 400
"""Most characters of unreadable arguments that the refusal quotes."""


class Dispatcher:
    """Prepares and runs the calls of one adopted session."""

    def __init__(  # noqa: PLR0913 - what one session's calls are judged by
        self,
        table: ToolTable,
        held: frozenset[str],
        rights: SessionRights,
        policy: SessionPolicy,
        *,
        tool_timeout_s: float,
        approval_expiry_s: float,
        now_ms: Callable[[], int],
        command_fingerprint: Callable[[Mapping[str, JsonValue], str], str],
        protection: Protection | None = None,
    ) -> None:
        """Bind a session's rights, its policy, and the names of the tools it holds.

        A tool for owners is refused to everyone else, even if the session holds it.

        Args:
            table: The tree's tools.
            held: Names of the tools that the session holds.
            rights: The session's rights; each tool gets the part that it declares.
            policy: The tree's policy for this session.
            tool_timeout_s: Longest run of a call whose tool and agent set no limit.
            approval_expiry_s: How long a person may take to answer a question.
            now_ms: Returns the tree's time.
            command_fingerprint: Takes a call's arguments and the name of the one that is a command. Returns a
                text that changes when a file changes that the command names; an approval is bound to it.
            protection: Knows the protected places and gives a call the writer that may change those it was
                allowed; None = the session has no writer.
        """
        self._table = table
        self._policy = policy
        self._owned = frozenset() if policy.standing.is_owner else table.for_owners
        self._held = held - self._owned
        self._at_hand = {name: entry for name in self._held if (entry := table.get(name)) is not None}
        self.client_tools = table.for_client
        """Names of the tools whose calls are never executed here: the creating program answers them."""
        self._rights = rights
        self._given: dict[str, SessionRights] = {}
        self._tool_timeout_s = tool_timeout_s
        self.answer_s = approval_expiry_s
        """How long a person may take to answer a question, in seconds."""
        self.person_tools = table.for_persons
        """Names of those of them that a person answers."""
        self.can_ask_person = policy.standing.has_channel
        """Whether a session at or above this one has a channel."""
        self._tool_timeouts = rights.config.tool_timeouts
        self.cleanup_s = rights.config.exec_cleanup_s
        """How long a command may take to end, in seconds."""
        self._now_ms = now_ms
        self._max_chars = self.max_chars = rights.config.max_result_chars
        self.program_tools = table.for_programs & self._held
        self.search_tools = table.for_search & self._held
        self.source_of = table.source_of
        self._pictures = Pictures(rights.config.images, rights.config.context_tokens)
        self._place = str(rights.workspace_root)
        self._command_fingerprint = command_fingerprint
        self._protection = protection
        self._after_untrusted = policy.policy.after_untrusted
        self._max_tier = policy.find_highest_tier(())

    def prepare(
        self,
        key: str,
        call: ToolCall,
        asked_by: tuple[Principal, ...] = (),
        taint: str = "",
        *,
        may_be_cut: bool = False,
    ) -> PreparedCall | RejectedCall | ImmediateOutcome:
        """Check one call, made for these askers. Never raises for anything a model sent.

        ``taint`` says where untrusted text came from that the session has taken in; empty = from nowhere.
        ``may_be_cut`` says that the reply was cut off at its length limit, maybe within this call.
        """
        checked = self._check(key, call, asked_by, taint)
        return _note_cut(checked) if may_be_cut and isinstance(checked, RejectedCall) else checked

    def _check(
        self, key: str, call: ToolCall, asked_by: tuple[Principal, ...], taint: str
    ) -> PreparedCall | RejectedCall | ImmediateOutcome:
        entry = None if asked_by else self._at_hand.get(call.name)
        if entry is None:
            entry = self._table.get(call.name)
            held = self._held - self.find_withheld(asked_by)
            if entry is None or entry.name not in held:
                return self._refuse_unknown(key, call, entry, held, asked_by)
        if call.unread is not None:
            return _reject_unreadable(key, entry, call.unread)
        try:
            params, arguments = entry.compiled.validate(call.arguments)
            judged = self._assign_tier(key, call.id, entry, params, arguments, taint)
            return self._check_askers(judged, asked_by) if asked_by else judged
        except ValidationError as error:
            digest = _digest_of_invalid(entry.name, call.arguments)
            return RejectedCall(key, entry.name, error.message, error.field, digest, entry.compiled.schema)
        except Exception as error:  # noqa: BLE001 - whatever a check meets, the call fails and not its session
            failed = _make_check_error(entry.name, self._rights.session_id, error)
            return self._make_error_outcome(key, call.id, entry.name, failed, "error")

    def refuse(self, prepared: PreparedCall, error: Exception) -> RejectedCall | ImmediateOutcome:
        """Return what becomes of a prepared call that a later check refuses."""
        key, entry = prepared.call.key, prepared.entry
        if isinstance(error, ValidationError):
            digest = _digest_of_invalid(entry.name, prepared.call.arguments)
            return RejectedCall(key, entry.name, error.message, error.field, digest, entry.compiled.schema)
        failed = _make_check_error(entry.name, self._rights.session_id, error)
        return self._make_error_outcome(key, prepared.provider_id, entry.name, failed, "error")

    def find_withheld(self, askers: tuple[Principal, ...]) -> frozenset[str]:
        """Return the tools withheld while the session acts for these askers; empty without askers."""
        if not askers:
            return frozenset()
        withheld = self._policy.find_withheld(askers)
        return withheld if all(each.is_owner for each in askers) else withheld | self._table.for_owners

    def _check_askers(
        self, judged: PreparedCall | ImmediateOutcome, askers: tuple[Principal, ...]
    ) -> PreparedCall | ImmediateOutcome:
        """Return a call as judged, or why it may not be made for these askers."""
        most = self._policy.find_highest_tier(askers)
        if not isinstance(judged, PreparedCall) or judged.call.tier <= most:
            return judged
        tier, tool = PermissionTier(judged.call.tier), judged.entry.tool
        reason = f"{tier.label} calls may not be made for this sender: {most.label} at most (max_tier)"
        return self._make_blocked_outcome(judged.call.key, judged.provider_id, tool, tier, reason)

    async def run_before_hooks(
        self,
        prepared: PreparedCall,
        hooks: HookChain,
        ctx: HookContext,
        taint: str = "",
        asked_by: tuple[Principal, ...] = (),
    ) -> tuple[PreparedCall | ImmediateOutcome, tuple[HookFault, ...]]:
        """Run the hooks before a prepared call; arguments that they change are validated and judged again."""
        key, call_id, entry = prepared.call.key, prepared.provider_id, prepared.entry
        ruling = await hooks.before(
            CalledTool(call_id, entry.name, prepared.call.arguments),
            ctx,
            entry.compiled.validate,
            partial(
                make_result_message, call_id, entry.name, at_ms=self._now_ms(), max_chars=self._max_chars
            ),
        )
        faults = tuple(ruling.faults)
        if ruling.block is not None:
            at_ms, most = self._now_ms(), self._max_chars
            message = make_blocked_message(call_id, entry.name, ruling.block, at_ms, max_chars=most)
            return ImmediateOutcome(key, "blocked", message), faults
        if ruling.message is not None:
            message = await self._pictures.fit(ruling.message, max_chars=self._max_chars, harmless=False)
            supplied = ImmediateOutcome(key, "ok", message, ruling.artifacts, untrusted=ruling.untrusted)
            return supplied, faults
        if ruling.changed:
            try:
                judged = self._assign_tier(key, call_id, entry, ruling.params, ruling.arguments, taint)
            except Exception as error:  # noqa: BLE001 - the same for what hooks made of a call
                failed = _make_check_error(entry.name, self._rights.session_id, error)
                return self._make_error_outcome(key, call_id, entry.name, failed, "error"), faults
            return self._check_askers(judged, asked_by), faults
        return prepared, faults

    def _assign_tier(
        self,
        key: str,
        call_id: str,
        entry: ToolEntry,
        params: Any,
        arguments: Mapping[str, JsonValue],
        taint: str,
    ) -> PreparedCall | ImmediateOutcome:
        tool = entry.tool
        tier = self._find_tier(tool, params)
        try:
            tool.check_allowed(params, self._rights.config)
        except PermissionDenied as error:
            return self._make_error_outcome(key, call_id, tool.name, error, "denied")
        outside = self._find_outside_places(tool, arguments)
        if outside:
            tier = PermissionTier.ELEVATED
        if tier is _READ_ONLY:
            checked = CheckedCall(key, tool.name, arguments, "", 0, True)
            return PreparedCall(checked, call_id, entry, params, False)
        places = self._find_protected_places(tool, arguments) if tool.changes else None
        if places:
            tier = PermissionTier.ELEVATED
        if tier > self._max_tier:
            reason = (
                f"session {self._rights.session_id!r} may make no {tier.label} calls: the policy allows "
                f"{self._max_tier.label} at most (max_tier)"
            )
            return self._make_blocked_outcome(key, call_id, tool, tier, reason)
        needs_approval = tier is PermissionTier.ELEVATED
        if tier is PermissionTier.SYSTEM:
            setting = self._rights.config.system_tier
            if setting == "deny":
                reason = (
                    f"session {self._rights.session_id!r} may make no System calls: system_tier is 'deny' "
                    f"{self._rights.denied_in}".rstrip()
                )
                return self._make_blocked_outcome(key, call_id, tool, tier, reason)
            needs_approval = setting == "ask"
        if taint and self._after_untrusted != "allow":
            if self._after_untrusted == "deny":
                reason = (
                    f"this session has taken in untrusted text ({taint}), and the policy refuses it every "
                    "call above ReadOnly from then on (after_untrusted is 'deny')"
                )
                return self._make_blocked_outcome(key, call_id, tool, tier, reason)
            needs_approval = True
        digest = self._digest(tool, arguments, is_asked=needs_approval)
        checked = CheckedCall(key, tool.name, arguments, digest, int(tier), tool.idempotent)
        return PreparedCall(checked, call_id, entry, params, needs_approval, places, outside)

    def _find_tier(self, tool: Tool[Any], params: Any) -> PermissionTier:
        tier = tool.tier
        try:
            asked = tool.tier_for(params)
            return tier if asked is tier else PermissionTier(max(tier, asked))
        except Exception as error:  # noqa: BLE001 - a tool that fails to report its tier gets the highest
            self._report(tool, "tier_for of tool", error, describe_error(error))
            return PermissionTier.ELEVATED

    def _find_outside_places(self, tool: Tool[Any], arguments: Mapping[str, JsonValue]) -> frozenset[str]:
        """Return the names of the allowed places outside the workspace to which a call's arguments lead."""
        if (
            self._protection is None
            or not self._rights.config.outside_roots
            or ToolFlag.WORKSPACE_ONLY not in tool.flags
        ):
            return frozenset()
        try:
            paths = [*tool.list_changed_paths(arguments), *tool.list_read_paths(arguments)]
        except Exception as error:  # noqa: BLE001 - a tool that fails to report its paths reaches nothing else
            self._report(tool, "list_read_paths of tool", error, describe_error(error))
            return frozenset()
        return frozenset().union(*(self._protection.find_outside(path) for path in paths))

    def _find_protected_places(self, tool: Tool[Any], arguments: Mapping[str, JsonValue]) -> frozenset[str]:
        """Return the names of the protected places to which a call's arguments lead."""
        if self._protection is None:
            return frozenset()
        try:
            paths = tool.list_changed_paths(arguments)
        except Exception as error:  # noqa: BLE001 - a tool that fails to report its paths may change any
            self._report(tool, "list_changed_paths of tool", error, describe_error(error))
            return _UNKNOWN_PLACE
        return frozenset().union(*(self._protection.find_places(path) for path in paths))

    def _digest(self, tool: Tool[Any], arguments: Mapping[str, JsonValue], *, is_asked: bool) -> str:
        place = self._place
        if is_asked and tool.command_in:
            place += "\0" + self._command_fingerprint(arguments, tool.command_in)
        if is_asked and tool.changes:
            place += "".join(f"\0{each}" for each in sorted(self._find_protected_places(tool, arguments)))
        if is_asked:
            place += "".join(f"\0{each}" for each in sorted(self._find_outside_places(tool, arguments)))
        return compute_digest(tool.name, arguments, place)

    def _refuse_unknown(
        self,
        key: str,
        call: ToolCall,
        entry: ToolEntry | None,
        held: frozenset[str],
        asked_by: tuple[Principal, ...],
    ) -> ImmediateOutcome:
        names = ", ".join(sorted(held)) or "none"
        if entry is None:
            error: ToolError = ExecutionError(f"no tool is named {call.name!r}; this session holds: {names}")
            return self._make_error_outcome(key, call.id, call.name, error, "error")
        found = self._policy.explain_to(entry.name, asked_by)
        removal = found.removal
        is_for_owners = entry.name in self._table.for_owners
        if entry.name in self._owned or (is_for_owners and not all(each.is_owner for each in asked_by)):
            reason = OWNERS_ALONE
        else:
            more = f"; {found.note}" if found.note else ""
            why = f" ({removal.step}: {removal.why}{more})" if removal is not None else ""
            if (
                not why
                and self._rights.config.workspace_access == "ro"
                and entry.name in self._table.for_writers
            ):
                why = " (its workspace is read-only: workspace_access is 'ro')"
            reason = f"session {self._rights.session_id!r} does not hold {entry.name}{why}; it holds: {names}"
        return self._make_blocked_outcome(key, call.id, entry.tool, entry.tool.tier, reason)

    @property
    def callable_in_programs(self) -> tuple[ToolEntry, ...]:
        """The tools that a program of the session may call, and that a search finds, sorted by name."""
        # A program's own text comes from its caller; another program inside it would only hide the calls.
        names = sorted(self._at_hand.keys() - self._table.for_texts - self.search_tools)
        return tuple(self._at_hand[name] for name in names)

    def prepare_again(
        self, checked: CheckedCall, call_id: str, asked_by: tuple[Principal, ...] = ()
    ) -> PreparedCall | ImmediateOutcome:
        """Prepare a call from its journaled arguments, on a host that did not prepare it before."""
        prepared = self.prepare(checked.key, ToolCall(call_id, checked.tool, checked.arguments), asked_by)
        if isinstance(prepared, RejectedCall):
            reason = f"its journaled arguments are no longer valid: {prepared.message}"
            message = make_blocked_message(call_id, checked.tool, reason, self._now_ms())
            return ImmediateOutcome(checked.key, "blocked", message)
        return prepared

    def check_unchanged(self, prepared: PreparedCall, digest: str) -> ImmediateOutcome | None:
        """Return None if a call is the one that was approved or intended, else the outcome that blocks it."""
        name = prepared.entry.name
        tool, is_asked = prepared.entry.tool, prepared.needs_approval
        try:
            if not digest or digest == self._digest(tool, prepared.call.arguments, is_asked=is_asked):
                return None
            # A call that another host prepares again is judged without the text that its session had seen.
            if not is_asked and digest == self._digest(tool, prepared.call.arguments, is_asked=True):
                return None
            reason = "its arguments are not the ones that were approved"
            if is_asked and (tool.command_in or tool.changes):
                reason += ", or the files it names have changed since; ask again"
        except Exception as error:  # noqa: BLE001 - what can't be compared is not what was approved
            reason = describe_error(_make_check_error(name, self._rights.session_id, error))
        message = make_blocked_message(prepared.provider_id, name, reason, self._now_ms())
        return ImmediateOutcome(prepared.call.key, "blocked", message)

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
            return self._make_error_outcome(key, call_id, tool, ExecutionError(answer.failure), "error")
        entry = self._table.get(tool)
        if entry is not None and entry.answers is not None:
            entry.answers.validate(result.output)
        untrusted = False if entry is None else entry.tool.untrusted
        is_answer = is_of_program(key)
        message = make_result_message(
            call_id,
            tool,
            result,
            self._now_ms(),
            max_chars=MAX_ANSWER_CHARS if is_answer else self._max_chars,
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

    async def fit_images(self, outcome: ImmediateOutcome, tier: int) -> ImmediateOutcome:
        """Return an outcome whose images fit a model's request."""
        if len(outcome.message.content) == 1:
            return outcome
        harmless = tier == PermissionTier.READ_ONLY
        message = await self._pictures.fit(outcome.message, max_chars=self._max_chars, harmless=harmless)
        return replace(outcome, message=message)

    async def execute(
        self, prepared: PreparedCall, call_id: str, digest: str, signals: CallSignals
    ) -> ImmediateOutcome:
        """Run a prepared call to its one result.

        Args:
            prepared: The call.
            call_id: Names the call to the tool.
            digest: What was approved or intended; anything else is not run.
            signals: The call's deadline and progress.

        Contract: a task cancelled from outside with ``signals.cancelled`` set gives an ``aborted`` outcome;
        any other cancellation of the task is propagated. No exception of the tool is propagated, nor a
        ``CancelledError`` of something that the tool awaited.
        """
        tool = prepared.entry.tool
        if digest and (altered := self.check_unchanged(prepared, digest)) is not None:
            return altered
        try:
            context = ToolContext(self._choose_rights(prepared), call_id, signals, prepared.answered)
            result = await tool.execute(prepared.params, context)
            is_answer = is_of_program(prepared.call.key)
            message = make_result_message(
                prepared.provider_id,
                tool.name,
                result,
                self._now_ms(),
                max_chars=MAX_ANSWER_CHARS if is_answer else self._max_chars,
                untrusted=tool.untrusted,
                marks=not is_answer,
            )
            if len(message.content) > 1:
                harmless = prepared.call.tier == PermissionTier.READ_ONLY
                message = await self._pictures.fit(
                    message, max_chars=self._max_chars, harmless=harmless, narrower=result.image_limits
                )
        except InputNeeded as needed:
            return self._ask_for_input(prepared, needed, signals)
        except ToolError as error:
            return self._make_tool_error(prepared, error, signals)
        except asyncio.CancelledError:
            if signals.cancelled:
                return self.make_interrupted_outcome(prepared, signals)
            if is_cancelled():
                raise
            inner = ExecutionError(f"{tool.name} failed: something it waited for was cancelled")
            return self._make_error_outcome(
                prepared.call.key, prepared.provider_id, tool.name, inner, "error"
            )
        except BaseException as error:  # a tool may raise anything, even SystemExit; the session continues
            if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
                raise  # the user ends the program; the system raises it only in the main thread
            return self._make_unexpected_error(prepared, error)
        return ImmediateOutcome(
            prepared.call.key,
            "ok",
            message,
            result.artifacts,
            untrusted=bool(result.untrusted or tool.untrusted),
            is_json=is_answer and not isinstance(result.output, str),
        )

    def _make_unexpected_error(self, prepared: PreparedCall, error: BaseException) -> ImmediateOutcome:
        """Return the outcome of a call whose tool raised an exception that is not a ToolError."""
        tool = prepared.entry.tool
        text = f"{tool.name} failed: {describe_error(error)}"
        frames = self._report(tool, "tool", error, text)
        plain = self._mark_untrusted(tool, ExecutionError(text))
        outcome = self._make_error_outcome(prepared.call.key, prepared.provider_id, tool.name, plain, "error")
        message = add_frames(outcome.message, frames)
        return replace(outcome, message=message, untrusted=bool(tool.untrusted))

    def _report(self, tool: Tool[Any], what: str, error: BaseException, text: str) -> list[str]:
        """Show a tool's author what it raised, and return the frames of the author's files."""
        return report_error(f"{what} {tool.name!r} of session {self._rights.session_id}", error, text)

    def _mark_untrusted(self, tool: Tool[Any], error: ToolError) -> ToolError:
        """Return a tool's error; its text is put between marks if the tool declares it as untrusted."""
        if tool.untrusted is True:
            error.message = mark_foreign(str(error.message), tool.name, self._max_chars // 2)
        return error

    def _narrow(self, entry: ToolEntry) -> SessionRights:
        """Return the session's rights, narrowed to the capabilities that a tool declared."""
        given = self._given[entry.tool.name] = self._rights.narrowed(entry.name, entry.row.declared)
        return given

    def _choose_rights(self, prepared: PreparedCall) -> SessionRights:
        rights = self._given.get(prepared.entry.tool.name) or self._narrow(prepared.entry)
        return self._add_rights(rights, prepared) if prepared.call.tier == PermissionTier.ELEVATED else rights

    def _add_rights(self, rights: SessionRights, prepared: PreparedCall) -> SessionRights:
        """Return the rights of an allowed call.

        Its writer may change the protected places of the request, its files are also those of the directories
        outside the workspace that the request names, and its jobs may leave the confinement.
        """
        if self._protection is None:
            return rights
        if rights.writer is not None:
            rights = replace(rights, writer=self._protection.writer(prepared.places, prepared.outside))
        if rights.reader is not None and prepared.outside:
            rights = replace(rights, reader=self._protection.reader(prepared.outside))
        return rights if rights.jobs is None else replace(rights, jobs=self._protection.jobs())

    def _make_tool_error(
        self, prepared: PreparedCall, error: ToolError, signals: CallSignals
    ) -> ImmediateOutcome:
        """Return the outcome of a ToolError; its fields may hold anything."""
        outcome: Outcome = "denied" if isinstance(error, PermissionDenied) else "error"
        passes = isinstance(error, Timeout) or (isinstance(error, ExecutionError) and error.retryable is True)
        try:
            marked = self._mark_untrusted(prepared.entry.tool, error)
            return self._make_failed_attempt(prepared, marked, outcome, signals, again=passes)
        except (AttributeError, TypeError, ValueError, RecursionError):
            return self._make_unexpected_error(prepared, error)

    def make_interrupted_outcome(self, prepared: PreparedCall, signals: CallSignals) -> ImmediateOutcome:
        """Return the outcome of a call that was stopped by its deadline or by a cancellation.

        It holds the call's last progress report as ``partial``.
        """
        over_s = time.monotonic() - signals.deadline
        if over_s >= 0:
            timeout = Timeout(round(self.timeout_s(prepared) + over_s, 3), prepared.entry.name)
            return self._make_failed_attempt(prepared, timeout, "timeout", signals, again=True)
        error = ExecutionError("aborted while it ran; it may have done part of its work")
        return self._make_failed_attempt(prepared, error, "aborted", signals, again=False)

    def make_skipped_outcome(self, prepared: PreparedCall) -> ImmediateOutcome:
        """Return the outcome of a call that was cancelled before it began."""
        error = ExecutionError("stopped before its turn came; it did not run")
        return self._make_error_outcome(
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
            partial = shorten_progress(signals.partial, min(SHOWN_CHARS, self._max_chars // 2))
            if prepared.entry.tool.untrusted is True:
                partial = mark_foreign(dump_readable(partial), prepared.entry.name, self._max_chars // 2)
            extra["partial"] = partial
        name, at_ms = prepared.entry.name, self._now_ms()
        message = make_error_message(
            prepared.provider_id, name, error, at_ms, extra=extra, max_chars=self._max_chars
        )
        tool = prepared.entry.tool
        may = again and prepared.call.repeatable and (tool.retry is not None or isinstance(error, Timeout))
        return ImmediateOutcome(
            prepared.call.key, outcome, message, again=may, untrusted=bool(tool.untrusted)
        )

    def timeout_s(self, prepared: PreparedCall) -> float:
        """Return the time limit of a call in seconds: the agent's, else the tool's, else the tree's."""
        tool = prepared.entry.tool
        own_s = self._tool_timeouts.get(tool.name) if self._tool_timeouts else None
        if tool.name in self.person_tools:
            return own_s or tool.timeout_s or self.answer_s
        return own_s or tool.timeout_s or self._tool_timeout_s

    def _ask_for_input(
        self, prepared: PreparedCall, needed: InputNeeded, signals: CallSignals
    ) -> ImmediateOutcome:
        """Return the outcome of a call that needs a person's answers, or that nobody can answer."""
        if not self.can_ask_person:
            return self.make_unasked_outcome(prepared, prepared.provider_id)
        try:
            wanted = needed.to_input()
        except ExecutionError as error:
            return self._make_tool_error(prepared, error, signals)
        name = prepared.entry.name
        message = make_pending_message(prepared.provider_id, name, PERSON_ASKED, "", self._now_ms())
        return ImmediateOutcome(prepared.call.key, "pending", message, wanted=wanted)

    def make_unasked_outcome(self, prepared: PreparedCall, call_id: str) -> ImmediateOutcome:
        """Return the outcome of a question where no session has a channel."""
        error = ExecutionError(
            "nobody can be asked: no session at or above this one has a channel; decide yourself, and say "
            "what you assumed"
        )
        return self._make_error_outcome(prepared.call.key, call_id, prepared.call.tool, error, "error")

    def _make_blocked_outcome(
        self, key: str, call_id: str, tool: Tool[Any], tier: PermissionTier, reason: str
    ) -> ImmediateOutcome:
        error = PermissionDenied(tier, reason, by_policy=True)
        return self._make_error_outcome(key, call_id, tool.name, error, "denied")

    def _make_error_outcome(
        self, key: str, call_id: str, tool: str, error: ToolError, outcome: Outcome
    ) -> ImmediateOutcome:
        message = make_error_message(call_id, tool, error, self._now_ms(), max_chars=self._max_chars)
        return ImmediateOutcome(key, outcome, message)


def _reject_unreadable(key: str, entry: ToolEntry, text: str) -> RejectedCall:
    """Refuse a call whose arguments are not an object; the message also says what a call requires."""
    words, field = "", None
    try:
        entry.compiled.validate({})
    except ValidationError as error:
        words, field = f"; a call needs: {error.message}", error.field
    message = f"the arguments are not a whole JSON object: {cut_text(text, MAX_UNREAD_SHOWN)!r}{words}"
    digest = _digest_of_invalid(entry.name, text)
    return RejectedCall(key, entry.name, message, field, digest, entry.compiled.schema)


def _note_cut(rejected: RejectedCall) -> RejectedCall:
    """Return a refusal that says first that the reply was cut off."""
    message = (
        "the reply was cut off at its length limit before this call was complete; make the call shorter, or "
        f"split it ({rejected.message})"
    )
    return replace(rejected, message=message)


def _make_check_error(tool: str, session: str, error: Exception) -> ToolError:
    """Return the error of a call that can't be checked."""
    if isinstance(error, ToolError):
        return error
    return ExecutionError(
        f"the call of {tool} in session {session!r} can't be checked: {describe_error(error)}"
    )


def _digest_of_invalid(tool: str, arguments: Any) -> str:
    try:
        value = to_json_value(arguments)
    except RecursionError:
        value = "nested too deeply"
    return compute_digest(tool, {"arguments": value})
