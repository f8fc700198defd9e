"""The supervisor's way to a gateway in another process. A lost gateway is started again and asked anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sessiontree.runtime.errors import HostLost
from sessiontree.runtime.frames import AskModel, Watch
from sessiontree.runtime.gateway import NO_MODEL, Asker
from sessiontree.runtime.gateway_frames import Answered, Ask, AskWhole, Forget, NotAnswered, Said
from sessiontree.runtime.link import HostLink, Transport
from sessiontree.runtime.progress import ProgressHub
from sessiontree.runtime.reports import ActorRow

MOST_LOSSES = 3
"""How often a gateway may be lost over a session's question before that fails."""


class GatewayLink:
    """A gateway in another process, started with the first question.

    Args:
        make_transport: Starts a gateway and returns the way to it.
        hub: Where pieces of answers go.
        equipment_of: Names the model a tree was opened with; None where it has none that waits.
        resend_after_s: When frames not known to be received are sent again.
    """

    def __init__(
        self,
        make_transport: Callable[[str], Transport],
        hub: ProgressHub,
        equipment_of: Callable[[str], str | None],
        *,
        resend_after_s: float,
    ) -> None:
        """Begin without a gateway."""
        self._make_transport = make_transport
        self._hub = hub
        self._equipment_of = equipment_of
        self._resend_after_s = resend_after_s
        self._link: HostLink | None = None
        self._starts = 0
        self._losses: dict[tuple[str, str], int] = {}
        self._ticket = 0
        self._asked: dict[int, Asker] = {}
        self._tickets: dict[tuple[str, str], int] = {}
        self._known: set[tuple[str, str]] = set()
        self._watched: set[str] = set()

    def ask(self, question: AskModel, asker: Asker) -> None:
        """Ask the tree's model; an earlier question of the same session is withdrawn."""
        equipment = self._equipment_of(asker.tree_id)
        if equipment is None:
            asker.failed(NO_MODEL, "")
            return
        place = (asker.tree_id, asker.session)
        self._drop_ticket(place)
        self._ticket += 1
        self._tickets[place] = self._ticket
        self._asked[self._ticket] = asker
        self._known.add(place)
        link = self._running()
        link.send(Ask(asker.tree_id, asker.session, self._ticket, asker.kind, question, equipment))

    def withdraw(self, tree_id: str, session: str) -> None:
        """Drop a session's question; its answer is not delivered."""
        if self._drop_ticket((tree_id, session)) and self._link is not None:
            self._link.send(Forget(tree_id, session, keep_conversation=True))

    def forget(self, tree_id: str, session: str) -> None:
        """Drop a session's question and conversation."""
        self._drop_ticket((tree_id, session))
        self._losses.pop((tree_id, session), None)
        if (tree_id, session) in self._known and self._link is not None:
            self._known.discard((tree_id, session))
            self._link.send(Forget(tree_id, session, keep_conversation=False))

    def watch(self, tree_id: str, *, watched: bool) -> None:
        """Say whether anybody watches what a tree's models say while they say it."""
        change = self._watched.add if watched else self._watched.discard
        change(tree_id)
        if self._link is not None:
            self._link.send(Watch(tree_id, watched))

    def actors(self) -> list[ActorRow]:
        """Return the gateway's process, if it runs."""
        if self._link is None:
            return []
        transport = self._link.transport
        return [ActorRow(self._link.name, "gateway", transport.pid, transport.level)]

    async def close(self) -> None:
        """Drop everything and end the gateway."""
        self._asked.clear()
        self._tickets.clear()
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    def _running(self) -> HostLink:
        if self._link is None:
            self._starts += 1
            name = f"gateway{self._starts}"
            self._link = HostLink(
                name,
                self._make_transport(name),
                on_outcome=self._on_answer,
                on_lost=self._on_lost,
                on_free=lambda link: None,
                on_progress=lambda progress: None,
                resend_after_s=self._resend_after_s,
            )
            for tree_id in self._watched:
                self._link.send(Watch(tree_id, True))
        return self._link

    def _drop_ticket(self, place: tuple[str, str]) -> bool:
        ticket = self._tickets.pop(place, None)
        if ticket is not None:
            self._asked.pop(ticket, None)
        return ticket is not None

    def _on_answer(self, link: HostLink, answer: Any) -> None:
        if isinstance(answer, Said):
            self._hub.emit(answer.tree_id, answer.session, answer.event)
            return
        asker = self._asked.pop(answer.ticket, None)
        if asker is None:
            return
        place = (asker.tree_id, asker.session)
        self._tickets.pop(place, None)
        if not isinstance(answer, AskWhole):
            self._losses.pop(place, None)
        if isinstance(answer, Answered):
            asker.answered(answer.message)
        elif isinstance(answer, NotAnswered):
            asker.failed(answer.reason, answer.said)
        else:
            assert isinstance(answer, AskWhole)  # noqa: S101 - the last answer there is
            asker.reask()

    def _on_lost(self, link: HostLink, lost: HostLost) -> None:
        """Every open question is asked again, whole: the next gateway holds no conversation.

        One that was open each time fails in the end, however many others were answered in between.
        """
        self._link = None
        self._known.clear()
        asked = list(self._asked.values())
        self._asked.clear()
        self._tickets.clear()
        for asker in asked:
            place = (asker.tree_id, asker.session)
            losses = self._losses[place] = self._losses.get(place, 0) + 1
            if losses > MOST_LOSSES:
                del self._losses[place]
                asker.failed(f"the model gateway was lost {losses} times over this question: {lost}", "")
            else:
                asker.reask()
