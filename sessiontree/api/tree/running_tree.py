"""A tree while it runs: its sessions, what waits for a person or the program, what it reports, and its end.

Floor 6, over a runtime. Opening, resuming and forking are in ``session_tree``.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from sessiontree.api.runtime import notebook_door
from sessiontree.api.runtime.runtime import Runtime
from sessiontree.api.tree.fact_reader import FactReader
from sessiontree.api.tree.keyword_options import ChildOptions
from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.settings.given_values import ANY_TEXT, check_options
from sessiontree.contracts.values.messages import Usage
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.runtime.transport.progress import ProgressReader

if TYPE_CHECKING:
    from sessiontree.api.runtime.backend import Backend
    from sessiontree.api.tree.client_calls import ClientCalls
    from sessiontree.api.tree.inbox import Approvals, HumanInbox
    from sessiontree.api.tree.program_hooks import ProgramHooks
    from sessiontree.api.tree.questions import Questions
    from sessiontree.api.tree.session_handle import SessionHandle
    from sessiontree.contracts.facts.tree_config import TreeConfig
    from sessiontree.contracts.recorded.results import SessionResult
    from sessiontree.runtime.transport.supervisor_api import SupervisorApi
    from sessiontree.tree.report import ReceiptLine

T = TypeVar("T")


class RunningTree:
    """What a program does with a tree that is open; :class:`SessionTree` opens it."""

    _config: TreeConfig
    _channel: HumanChannel | None
    _table: ToolTable
    _state_dir: Path
    _runtime: Runtime | None
    """Serves the tree; None = it is not open."""

    _desk: HumanInbox | None = None
    _hook_desk: ProgramHooks | None = None
    _was_open: bool = False
    _readers: weakref.WeakSet[ProgressReader]
    """Readers of its progress; the tree's end is the end of loops over them."""

    def __repr__(self) -> str:
        """Name the tree."""
        return f"<tree {self.tree_id}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Mapping[str, Any]:
        """Return the tree for a notebook's cell: a widget, HTML for a saved notebook, and text."""
        if not self._was_open:
            return {"text/plain": repr(self)}
        return notebook_door.render_tree(self.state_dir, self.tree_id)

    @property
    def tree_id(self) -> str:
        """The tree's id, unguessable."""
        return self._config.tree_id

    @property
    def state_dir(self) -> Path:
        """Where the journal is."""
        return self._runtime.state_dir if self._runtime is not None else self._state_dir

    @property
    def channel(self) -> HumanChannel | None:
        """Where Main talks to a person."""
        return self._channel

    @property
    def _backend(self) -> Backend:
        if self._runtime is None:
            raise _build_not_open_error()
        return self._runtime.backend

    @property
    def _supervisor(self) -> SupervisorApi:
        self._open()
        return self._backend.supervisor

    def _open(self) -> HumanInbox:
        if self._desk is None:
            raise _build_not_open_error()
        self._desk.check_loop()
        return self._desk

    @property
    def main(self) -> SessionHandle:
        """The session that talks to the person."""
        return self.session("main")

    def session(self, session_id: str) -> SessionHandle:
        """Return a handle of any session of the tree; its path is ``session_id``, such as ``main/w1``."""
        from sessiontree.api.tree.session_handle import SessionHandle

        backend, desk = self._backend, self._open()
        return SessionHandle(backend, desk, self.tree_id, session_id, hooks=self._hook_desk)

    @overload
    async def run(
        self, task: str, *, result_type: type[T], **options: Unpack[ChildOptions]
    ) -> SessionResult[T]: ...

    @overload
    async def run(
        self, task: str, *, result_type: Any = ..., **options: Unpack[ChildOptions]
    ) -> SessionResult[Any]: ...

    async def run(
        self, task: str, *, result_type: Any = None, **options: Unpack[ChildOptions]
    ) -> SessionResult[Any]:
        """Give a task to a new Branch below Main, and return its final answer, after all its children.

        The Branch may spawn sessions and answers once the last of them has ended; its interim messages are
        not returned. If the call is cancelled, the Branch is cancelled with everything below it. Each call
        creates a new Branch, which does not see Main's transcript.

        Args:
            task: Its first message.
            result_type: Type of its final message, as for :meth:`SessionHandle.spawn`.
            options: Members of :class:`ChildOptions` by name: its agent, budget, model settings, skills and
                time to live.

        Returns:
            The result of the completed Branch; ``output`` has the requested type.

        Raises:
            SessionFailed: it did not complete; says why.
            SpawnRefused, LimitExceeded: a rule or limit forbids it; nothing was started.
            ConfigError: an argument is wrong.
        """
        check_options(options, ChildOptions, "run", "task", "result_type")
        (result,) = await self.main.map(
            "branch", [task], on_error="first", result_type=result_type, **options
        )
        return result

    @property
    def approvals(self) -> Approvals:
        """Requests that wait for a person."""
        return self._open().approvals

    @property
    def questions(self) -> Questions:
        """Questions that wait for a person."""
        return self._open().questions

    @property
    def client_calls(self) -> ClientCalls:
        """Calls of client tools that wait for the program."""
        return self._open().client_calls(self._table)

    def events(self, *, after: int = 0) -> FactReader:
        """Iterate over the tree's durable facts in order, then wait for more; ends when Main has ended.

        ``record.fact`` is an object of a class of :mod:`sessiontree.facts`, or several of them in
        ``record.facts``. ``await tree.events().to_pandas()`` returns those so far.

        Args:
            after: Number of the last fact to skip.
        """
        return FactReader(self._supervisor, self.tree_id, after)

    def progress(self, session_id: str | None = None) -> ProgressReader:
        """Return a reader of events, which are not journaled: deltas, calls, and progress of tools.

        ``async for progress in tree.progress()`` yields them from now on, until the tree is closed.

        Args:
            session_id: Path of the session to watch; None = all sessions of the tree.
        """
        reader = ProgressReader(self._backend.watch(self.tree_id, session_id))
        self._readers.add(reader)
        return reader

    async def cancel(self, reason: str = "cancelled by the program") -> tuple[ReceiptLine, ...]:
        """End the whole tree.

        Args:
            reason: What the journal and the sessions' results say.

        Returns:
            The receipt: every session and how it ended.
        """
        return await self.main.cancel(reason)

    async def finish(self, summary: str) -> tuple[ReceiptLine, ...]:
        """End the tree as completed, with ``summary`` as Main's final message; live children are cancelled.

        Raises:
            ConfigError: the final message is not text.
        """
        ANY_TEXT.take(summary, "summary")
        supervisor = self._supervisor
        for child in (await supervisor.report(self.tree_id, "main")).children:
            await self.session(child).cancel(summary)
        return await supervisor.stop(self.tree_id, "main", summary, SessionStatus.COMPLETED)

    def receipt(self) -> tuple[ReceiptLine, ...]:
        """Return every session of the tree and its state."""
        self._open()
        return self._backend.ask_now(lambda supervisor: supervisor.receipt(self.tree_id))

    def usage(self) -> Usage:
        """Return the usage of all sessions of the tree so far, including those that have ended."""
        return sum((line.usage for line in self.receipt()), Usage())


def _build_not_open_error() -> SessionTreeError:
    return SessionTreeError(
        "the tree is not open; use `async with SessionTree(…) as tree`, "
        "or SessionTree.resume if it was closed"
    )
