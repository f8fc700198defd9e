"""What a program acts on, read from the facts of a tree: requests to show or decided, messages, its calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.client_call import ClientCall
from sessiontree.contracts.tree_facts import ApprovalDecided, ApprovalWaiting, ChannelSaid, ClientCallOpened
from sessiontree.journal.record import Record
from sessiontree.runtime.replay import fact_of
from sessiontree.tree.receipt import request_of
from sessiontree.tree.state import TreeState


@dataclass(frozen=True, slots=True)
class Shown:
    """A request waits for a person."""

    request: ApprovalRequest


@dataclass(frozen=True, slots=True)
class Decided:
    """A request waits no more."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Said:
    """Something was said on a session's channel."""

    channel: str
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call waits for the program."""

    call: ClientCall


Tiding: TypeAlias = Shown | Decided | Said | Called


def tidings_in(records: Iterable[Record], state: TreeState) -> list[Tiding]:
    """Return what of a tree's facts concerns a desk, in their order; what waits no more is not told."""
    tidings: list[Tiding] = []
    for record in records:
        fact: Any = fact_of(record.text)
        if isinstance(fact, ApprovalWaiting) and fact.how == "show":
            request = request_of(state, fact.request_id)
            if request is not None:
                tidings.append(Shown(request))
        elif isinstance(fact, ApprovalDecided):
            tidings.append(Decided(fact.request_id))
        elif isinstance(fact, ChannelSaid):
            tidings.append(Said(fact.channel, fact.text))
        elif isinstance(fact, ClientCallOpened) and fact.client_id in state.client_calls:
            call = ClientCall(fact.client_id, fact.session, fact.tool, fact.arguments, fact.expires_at_ms)
            tidings.append(Called(call))
    return tidings
