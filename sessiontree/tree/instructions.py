"""Instructions of the tree machine: what its controller carries out once the facts are durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.stimuli import Stimulus


@dataclass(frozen=True, slots=True)
class AcceptSpawn:
    """Tell the asker the child's id; ``started`` is False where the same key was asked before."""

    session: str
    started: bool


@dataclass(frozen=True, slots=True)
class RefuseSpawn:
    """Tell the asker why not."""

    error: SessionTreeError


@dataclass(frozen=True, slots=True)
class Deliver:
    """Give a posted stimulus to a session; it stays owed until taken."""

    session: str
    post_id: str
    stimulus: Stimulus


@dataclass(frozen=True, slots=True)
class RefuseDecision:
    """Tell who answered that the request is closed or unknown."""

    error: SessionTreeError


@dataclass(frozen=True, slots=True)
class RefuseSay:
    """Tell who wanted to say something why nobody hears it."""

    error: SessionTreeError


@dataclass(frozen=True, slots=True)
class ReleaseSession:
    """The session is over: free its host (``force``: whatever it is doing) and tell who waits for it."""

    session: str
    result: SessionResult[Any]
    force: bool


@dataclass(frozen=True, slots=True)
class WakeTreeAt:
    """Ring at this time; earlier bells stay."""

    at_ms: int


TreeInstruction: TypeAlias = (
    AcceptSpawn | RefuseSpawn | Deliver | RefuseDecision | RefuseSay | ReleaseSession | WakeTreeAt
)
