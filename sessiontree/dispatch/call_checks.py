"""How a tool call is prepared: it is checked, judged, and refused with the reason where it may not be made.

The order is fixed: name, and whether the session holds it → spellings → coercion → validation →
before-hooks → validation of what they changed → policy → tier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sessiontree.contracts.errors import (
    ExecutionError,
    PermissionDenied,
    ToolError,
    ValidationError,
    describe_error,
)
from sessiontree.contracts.handles.protection import Protection
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.approvals import CheckedCall, RejectedCall
from sessiontree.contracts.recorded.results import make_blocked_message
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.tools.context import SessionRights
from sessiontree.contracts.tools.hooks import CalledTool, HookContext
from sessiontree.contracts.tools.tool import Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue, compute_digest, to_json_value
from sessiontree.contracts.values.messages import ToolCall
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.dispatch.call_outcomes import CallOutcomes, report_author_error
from sessiontree.dispatch.hook_chain import HookChain
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.results import ImmediateOutcome, PreparedCall, make_result_message
from sessiontree.dispatch.tool_table import ToolEntry, ToolTable
from sessiontree.policy.compiled import SessionPolicy
from sessiontree.policy.steps import OWNERS_ALONE

_READ_ONLY: Final = PermissionTier.READ_ONLY
_NOWHERE: Final[frozenset[str]] = frozenset()
_UNKNOWN_PLACE: Final = frozenset({"\0"})
"""Stands for what a call would change that can't tell. It makes the call Elevated and allows no place."""
MAX_UNREAD_SHOWN = 400
"""Most characters of unreadable arguments that the refusal quotes."""


class CallChecks:
    """Checks the calls of one adopted session.

    Args:
        table: The tree's tools.
        held: Names of the tools that the session holds. A tool for owners is refused to everyone else.
        rights: The session's rights.
        policy: The tree's policy for this session.
        outcomes: Makes the outcomes of calls that are refused.
        command_fingerprint: Takes a call's arguments and the name of the one that is a command. Returns a
            text that changes when a file changes that the command names; an approval is bound to it.
        protection: Knows the protected places; None = the session has no writer.
    """

    def __init__(
        self,
        table: ToolTable,
        held: frozenset[str],
        rights: SessionRights,
        policy: SessionPolicy,
        outcomes: CallOutcomes,
        command_fingerprint: Callable[[Mapping[str, JsonValue], str], str],
        protection: Protection | None,
    ) -> None:
        self._table = table
        self._policy = policy
        self._owned = frozenset() if policy.standing.is_owner else table.for_owners
        self.held = held - self._owned
        """Names of the tools that the session holds."""
        self._at_hand = {name: entry for name in self.held if (entry := table.get(name)) is not None}
        self._rights = rights
        self._outcomes = outcomes
        self._max_chars = outcomes.max_chars
        self._now_ms = outcomes.now_ms
        self._place = str(rights.workspace_root)
        self._command_fingerprint = command_fingerprint
        self._protection = protection
        self._may_leave_workspace = protection is not None and bool(rights.config.outside_roots)
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
            held = self.held - self.find_withheld(asked_by)
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
            return self._outcomes.make_error_outcome(key, call.id, entry.name, failed, "error")

    def refuse(self, prepared: PreparedCall, error: Exception) -> RejectedCall | ImmediateOutcome:
        """Return what becomes of a prepared call that a later check refuses."""
        key, entry = prepared.call.key, prepared.entry
        if isinstance(error, ValidationError):
            digest = _digest_of_invalid(entry.name, prepared.call.arguments)
            return RejectedCall(key, entry.name, error.message, error.field, digest, entry.compiled.schema)
        failed = _make_check_error(entry.name, self._rights.session_id, error)
        return self._outcomes.make_error_outcome(key, prepared.provider_id, entry.name, failed, "error")

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
        return self._outcomes.make_blocked_outcome(judged.call.key, judged.provider_id, tool, tier, reason)

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
                make_result_message,
                call_id,
                entry.name,
                at_ms=self._now_ms(),
                max_chars=self._max_chars,
            ),
        )
        faults = tuple(ruling.faults)
        if ruling.block is not None:
            at_ms, most = self._now_ms(), self._max_chars
            message = make_blocked_message(call_id, entry.name, ruling.block, at_ms, max_chars=most)
            return ImmediateOutcome(key, "blocked", message), faults
        if ruling.message is not None:
            message = await self._outcomes.pictures.fit(
                ruling.message, max_chars=self._max_chars, harmless=False
            )
            supplied = ImmediateOutcome(key, "ok", message, ruling.artifacts, untrusted=ruling.untrusted)
            return supplied, faults
        if ruling.changed:
            try:
                judged = self._assign_tier(key, call_id, entry, ruling.params, ruling.arguments, taint)
            except Exception as error:  # noqa: BLE001 - the same for what hooks made of a call
                failed = _make_check_error(entry.name, self._rights.session_id, error)
                return self._outcomes.make_error_outcome(key, call_id, entry.name, failed, "error"), faults
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
            return self._outcomes.make_error_outcome(key, call_id, tool.name, error, "denied")
        outside = self._find_outside_places(tool, arguments) if self._may_leave_workspace else _NOWHERE
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
            return self._outcomes.make_blocked_outcome(key, call_id, tool, tier, reason)
        needs_approval = tier is PermissionTier.ELEVATED
        if tier is PermissionTier.SYSTEM:
            setting = self._rights.config.system_tier
            if setting == "deny":
                reason = (
                    f"session {self._rights.session_id!r} may make no System calls: system_tier is 'deny' "
                    f"{self._rights.denied_in}".rstrip()
                )
                return self._outcomes.make_blocked_outcome(key, call_id, tool, tier, reason)
            needs_approval = setting == "ask"
        if taint and self._after_untrusted != "allow":
            if self._after_untrusted == "deny":
                reason = (
                    f"this session has taken in untrusted text ({taint}), and the policy refuses it every "
                    "call above ReadOnly from then on (after_untrusted is 'deny')"
                )
                return self._outcomes.make_blocked_outcome(key, call_id, tool, tier, reason)
            needs_approval = True
        digest = self._digest(tool, arguments, is_asked=needs_approval)
        checked = CheckedCall(key, tool.name, arguments, digest, int(tier), tool.idempotent)
        return PreparedCall(checked, call_id, entry, params, needs_approval, places, outside)

    def _report(self, tool: Tool[Any], what: str, error: Exception) -> None:
        """Show a tool's author what it raised."""
        report_author_error(tool, self._rights.session_id, what, error, describe_error(error))

    def _find_tier(self, tool: Tool[Any], params: Any) -> PermissionTier:
        tier = tool.tier
        try:
            asked = tool.tier_for(params)
            return tier if asked is tier else PermissionTier(max(tier, asked))
        except Exception as error:  # noqa: BLE001 - a tool that fails to report its tier gets the highest
            self._report(tool, "tier_for of tool", error)
            return PermissionTier.ELEVATED

    def _find_outside_places(self, tool: Tool[Any], arguments: Mapping[str, JsonValue]) -> frozenset[str]:
        """Return the names of the allowed places outside the workspace to which a call's arguments lead."""
        if self._protection is None or ToolFlag.WORKSPACE_ONLY not in tool.flags:
            return _NOWHERE
        try:
            paths = [*tool.list_changed_paths(arguments), *tool.list_read_paths(arguments)]
        except Exception as error:  # noqa: BLE001 - a tool that fails to report its paths reaches nothing else
            self._report(tool, "list_read_paths of tool", error)
            return frozenset()
        return frozenset().union(*(self._protection.find_outside(path) for path in paths))

    def _find_protected_places(self, tool: Tool[Any], arguments: Mapping[str, JsonValue]) -> frozenset[str]:
        """Return the names of the protected places to which a call's arguments lead."""
        if self._protection is None:
            return frozenset()
        try:
            paths = tool.list_changed_paths(arguments)
        except Exception as error:  # noqa: BLE001 - a tool that fails to report its paths may change any
            self._report(tool, "list_changed_paths of tool", error)
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
            return self._outcomes.make_error_outcome(key, call.id, call.name, error, "error")
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
        return self._outcomes.make_blocked_outcome(key, call.id, entry.tool, entry.tool.tier, reason)

    @property
    def callable_in_programs(self) -> tuple[ToolEntry, ...]:
        """The tools that a program of the session may call, and that a search finds, sorted by name."""
        # A program's own text comes from its caller; another program inside it would only hide the calls.
        names = sorted(self._at_hand.keys() - self._table.for_texts - self._table.for_search)
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
