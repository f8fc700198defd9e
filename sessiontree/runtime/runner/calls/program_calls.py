"""The calls of one session that are programs, or searches for tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from sessiontree.contracts.recorded.approvals import CheckedCall, RejectedCall
from sessiontree.contracts.recorded.programs import STARTS_CHILDREN
from sessiontree.dispatch.results import ImmediateOutcome
from sessiontree.programs.interpreter_process import InterpreterProcess
from sessiontree.programs.signatures import build_face
from sessiontree.runtime.runner.calls.hosted_session import HostedSession
from sessiontree.runtime.runner.calls.program_runs import ProgramHost, ProgramRuns
from sessiontree.runtime.runner.calls.tool_searches import ToolSearches
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.session.instructions import PrepareCall


class ProgramCalls:
    """Begins the programs of one session, and takes what they end with.

    Args:
        session: The session on this host.
        finish: Takes their outcomes.
        reword: Takes a program whose text was refused, and rewords why.
        on_rested: Called when a program has nothing to say.
    """

    def __init__(
        self,
        session: HostedSession,
        finish: Callable[[ImmediateOutcome], None],
        reword: Callable[[PrepareCall, RejectedCall], Awaitable[None]],
        on_rested: Callable[[], None],
    ) -> None:
        self._session = session
        self._finish = finish
        self._reword = reword
        self._on_rested = on_rested
        self.runs: ProgramRuns | None = None
        """Made with the first program."""
        self._searches: ToolSearches | None = None
        """Made with the first search."""

    def advance(self, key: str) -> None:
        """Give a program the answers that it has not been given."""
        if self.runs is None:
            session, dispatcher = self._session, self._session.dispatcher
            schemas = {each.name: each.compiled.schema for each in dispatcher.callable_in_programs}
            self.runs = ProgramRuns(
                session.state,
                build_face(schemas, STARTS_CHILDREN),
                dispatcher.max_chars,
                session.now_ms,
                ProgramHost(session.queue.post, self._on_finished, session.tasks.begin, self._on_rested),
            )
        self.runs.advance(key)

    def abort(self, key: str) -> None:
        """End a program's interpreter, if it is there."""
        if self.runs is not None:
            self.runs.abort(key)

    def search(self, key: str, call: CheckedCall) -> ImmediateOutcome:
        """Return the outcome of a search for tools."""
        session = self._session
        self._searches = self._searches or ToolSearches(session.dispatcher)
        return self._searches.answer(session.state.calls[key], call, session.now_ms())

    def leave(self) -> tuple[InterpreterProcess | None, set[ProcessIdentity]]:
        """End the interpreters; return their process, and the processes that are ending."""
        if self._searches is not None:
            self._searches.close()
        return (None, set()) if self.runs is None else self.runs.close()

    def _on_finished(self, ended: ImmediateOutcome | RejectedCall) -> None:
        session = self._session
        call = session.state.calls.get(ended.key)
        if session.tasks.over or call is None:
            return
        if isinstance(ended, RejectedCall):  # as any call that is not valid, it passes those that reword it
            asked = PrepareCall(ended.key, call.call, asked_by=call.asked_by)
            session.tasks.begin(partial(self._reword, asked, ended))
        else:
            self._finish(ended)
            session.queue.wake()
