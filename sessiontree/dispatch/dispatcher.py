"""The path of every tool call: prepare → (approval and intent, decided elsewhere) → execute → finalize.

``call_checks.py`` prepares and ``call_outcomes.py`` finalizes; tools are executed here. Nothing calls a tool
except through this class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import current_thread, main_thread

from sessiontree.contracts.errors import ExecutionError, ToolError
from sessiontree.contracts.handles.protection import Protection
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.programs import MAX_ANSWER_CHARS, is_of_program
from sessiontree.contracts.recorded.tool_inputs import InputNeeded
from sessiontree.contracts.tools.context import CallSignals, SessionRights, ToolContext
from sessiontree.contracts.tools.thread_calls import is_cancelled
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.dispatch.call_checks import CallChecks
from sessiontree.dispatch.call_outcomes import CallOutcomes
from sessiontree.dispatch.results import CallTimeLimits, ImmediateOutcome, PreparedCall, make_result_message
from sessiontree.dispatch.tool_table import ToolEntry, ToolTable
from sessiontree.policy.compiled import SessionPolicy


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
        limits = CallTimeLimits(
            tool_timeout_s, rights.config.tool_timeouts, approval_expiry_s, table.for_persons
        )
        self.can_ask_person = policy.standing.has_channel
        """Whether a session at or above this one has a channel."""
        outcomes = CallOutcomes(table, rights, limits, now_ms, can_ask_person=self.can_ask_person)
        checks = CallChecks(table, held, rights, policy, outcomes, command_fingerprint, protection)
        self._outcomes = outcomes
        self._checks = checks
        # One front. They are bound here because each forwarding method would be one more call per tool call.
        self.prepare = checks.prepare
        self.prepare_again = checks.prepare_again
        self.check_unchanged = checks.check_unchanged
        self.run_before_hooks = checks.run_before_hooks
        self.refuse = checks.refuse
        self.find_withheld = checks.find_withheld
        self.timeout_s = limits.timeout_s
        self.fit_images = outcomes.fit_images
        self.make_client_outcome = outcomes.make_client_outcome
        self.make_interrupted_outcome = outcomes.make_interrupted_outcome
        self.make_skipped_outcome = outcomes.make_skipped_outcome
        self.make_unasked_outcome = outcomes.make_unasked_outcome
        self.source_of = table.source_of
        self.client_tools = table.for_client
        """Names of the tools whose calls are never executed here: the creating program answers them."""
        self.person_tools = table.for_persons
        """Names of those of them that a person answers."""
        self.program_tools = table.for_programs & checks.held
        self.search_tools = table.for_search & checks.held
        self.answer_s = approval_expiry_s
        """How long a person may take to answer a question, in seconds."""
        self.cleanup_s = rights.config.exec_cleanup_s
        """How long a command may take to end, in seconds."""
        self.max_chars = outcomes.max_chars
        """Longest text of a result that a model sees."""
        self._rights = rights
        self._now_ms = now_ms
        self._pictures = outcomes.pictures
        self._protection = protection
        self._given: dict[str, SessionRights] = {}

    @property
    def callable_in_programs(self) -> tuple[ToolEntry, ...]:
        """The tools that a program of the session may call, and that a search finds, sorted by name."""
        return self._checks.callable_in_programs

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
                max_chars=MAX_ANSWER_CHARS if is_answer else self.max_chars,
                untrusted=tool.untrusted,
                marks=not is_answer,
            )
            if len(message.content) > 1:
                harmless = prepared.call.tier == PermissionTier.READ_ONLY
                message = await self._pictures.fit(
                    message, max_chars=self.max_chars, harmless=harmless, narrower=result.image_limits
                )
        except InputNeeded as needed:
            return self._outcomes.ask_for_input(prepared, needed, signals)
        except ToolError as error:
            return self._outcomes.make_tool_error(prepared, error, signals)
        except asyncio.CancelledError:
            if signals.cancelled:
                return self._outcomes.make_interrupted_outcome(prepared, signals)
            if is_cancelled():
                raise
            inner = ExecutionError(f"{tool.name} failed: something it waited for was cancelled")
            return self._outcomes.make_error_outcome(
                prepared.call.key, prepared.provider_id, tool.name, inner, "error"
            )
        except BaseException as error:  # a tool may raise anything, even SystemExit; the session continues
            if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
                raise  # the user ends the program; the system raises it only in the main thread
            return self._outcomes.make_crash_error(prepared, error)
        return ImmediateOutcome(
            prepared.call.key,
            "ok",
            message,
            result.artifacts,
            untrusted=bool(result.untrusted or tool.untrusted),
            is_json=is_answer and not isinstance(result.output, str),
        )

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
