"""What a program reads of a session: its result, its status and its transcript."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Generic, cast

from sessiontree.api.runtime import notebook_door
from sessiontree.api.runtime.backend import Backend
from sessiontree.api.runtime.runtime import place_of_open
from sessiontree.api.tree.inbox import HumanInbox
from sessiontree.contracts.errors import SessionError
from sessiontree.contracts.facts.session_facts import ContextCompacted, MessagesShortened
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.recorded.results import R, SessionResult
from sessiontree.contracts.settings.given_values import NATURAL, Edge, Give, Natural
from sessiontree.contracts.values.messages import Message
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.journal.replay import read_fact
from sessiontree.runtime.transport.supervisor_api import SessionRecord, SupervisorApi
from sessiontree.schema.result import convert_result
from sessiontree.session.evolve import evolve
from sessiontree.session.state import SessionState, make_initial_state

_LIMIT = Edge[int | None](Annotated[Natural | None, Give("a whole number, at least 0, or None for all")])
FACTS_PER_PAGE = 512
"""Number of facts of a transcript that are read at a time."""


class SessionReader(Generic[R]):
    """Reads one session for the creating program; :class:`SessionHandle` also acts on it."""

    session_id: str
    """Its path, such as ``main/w1``."""
    _backend: Backend
    _desk: HumanInbox
    _tree_id: str
    _result_type: Any

    def __repr__(self) -> str:
        """Name tree and session."""
        return f"<session {self.session_id} of tree {self._tree_id}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Mapping[str, Any]:
        """Return the session and those below it for a notebook's cell: widget, HTML and text."""
        place = place_of_open(self._tree_id)
        if place is None:
            return {"text/plain": repr(self)}
        return notebook_door.render_tree(place, self._tree_id, self.session_id)

    @property
    def _supervisor(self) -> SupervisorApi:
        """The supervisor, for callers on the tree's event loop."""
        return self._on_loop.supervisor

    @property
    def _on_loop(self) -> Backend:
        self._desk.check_loop()
        return self._backend

    async def result(self) -> SessionResult[R]:
        """Wait until the session ends and return its result; ``output`` has the requested type.

        Raises:
            SessionError: it is Main, which never completes by itself, and nothing ends it.
        """
        if self.session_id == MAIN and not await self._supervisor.is_ending(self._tree_id):
            raise SessionError(
                MAIN,
                "main never completes by itself, so its result never comes; ask with send(…), or end "
                "the tree with tree.finish(…) or tree.cancel() first",
            )
        return self._convert_result(await self._request_result())

    def _request_result(self) -> asyncio.Future[SessionResult[Any]]:
        """Return the session's result as a future; its ``output`` is plain."""
        return self._on_loop.request_result(self._tree_id, self.session_id)

    def _convert_result(self, result: SessionResult[Any]) -> SessionResult[R]:
        """Return a result whose ``output`` has the requested type."""
        value = result.output
        if self._result_type is not None and value is not None and not _is_schema(self._result_type):
            value = convert_result(self._result_type, value)
        return replace(result, output=value, session_id=self.session_id)

    def status(self) -> SessionReport:
        """Return the session's current status."""
        return self._on_loop.ask_now(lambda supervisor: supervisor.report(self._tree_id, self.session_id))

    def history(self, *, after: int = 0, limit: int | None = None) -> list[Message]:
        """Return messages of the session's transcript, oldest first, as far as it is durable.

        It is the whole conversation. A compaction adds the summary at its time, as a notice, and removes
        nothing. It is always read from the beginning; use :meth:`transcript` for a long one.

        Args:
            after: How many of the oldest messages to leave out.
            limit: Maximum messages to return; None = all.

        Raises:
            ConfigError: a number is not valid, or below 0.
        """
        NATURAL.take(after, "after")
        _LIMIT.take(limit, "limit")
        found: list[Message] = []
        for messages in self._read_pages():
            found += messages[after:]
            after = max(0, after - len(messages))
            if limit is not None and len(found) >= limit:
                break
        return found[:limit]

    async def transcript(self, *, after: int = 0) -> AsyncIterator[Message]:
        """Iterate over the messages of the session's transcript, oldest first, as far as it is durable.

        It is read page by page and yields to other tasks between pages.

        Args:
            after: How many of the oldest messages to leave out.

        Raises:
            ConfigError: the number is not valid, or below 0.
        """
        NATURAL.take(after, "after")
        for messages in self._read_pages():
            for message in messages[after:]:
                yield message
            after = max(0, after - len(messages))
            await asyncio.sleep(0)

    def _read_pages(self) -> Iterator[list[Message]]:
        """Yield the messages of each page of facts in turn."""
        seq, state = 0, cast("SessionState | None", None)
        while state is None or seq:
            record = self._page(seq)
            state = state or make_initial_state(record.spec, record.limits)
            for text in record.facts:
                fact = read_fact(text)
                if isinstance(fact, ContextCompacted):
                    # What the summary replaced stays; the summary follows it.
                    state.transcript.append(fact.summary)
                elif not isinstance(fact, MessagesShortened):  # that concerns what the model sees
                    evolve(state, fact)
            yield state.transcript
            state.transcript = []
            seq = record.next_seq

    def _page(self, after: int) -> SessionRecord:
        return self._on_loop.ask_now(
            lambda supervisor: supervisor.record_of(self._tree_id, self.session_id, after, FACTS_PER_PAGE)
        )


def _is_schema(result_type: Any) -> bool:
    return isinstance(result_type, Mapping)
