"""How a forked session goes back to before it took in what a replaced child had reported.

Everything recorded before stays in the journal; from the fork on, the session goes on from there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from dataclasses import field
from typing import TypeAlias

from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.codec import Outcome, declare_sparse, register_kind
from sessiontree.contracts.values.messages import ToolResultMessage, UserMessage
from sessiontree.contracts.values.quick_dataclass import dataclass


@register_kind("served_answer")
@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """A recorded answer for a program that runs again: the first equal call gets it, and is not made."""

    number: int
    """Of the call that got it."""
    digest: str
    """Of the call's tool and arguments."""
    outcome: Outcome
    message: ToolResultMessage
    is_json: bool = declare_sparse(False)
    untrusted: bool = declare_sparse(False)


@register_kind("awaited_again")
@dataclass(frozen=True, slots=True)
class AwaitedAgain:
    """A call of a program that runs again, which waits for the child that replaces another one."""

    number: int
    """Of the call that started the replaced child."""
    digest: str
    """Of that call's tool and arguments."""
    call_id: str
    """Key of the new child's spawn; its report answers the call of this id."""


@register_kind("rewound_program")
@dataclass(frozen=True, slots=True)
class RewoundProgram:
    """A program whose text runs again."""

    call: CheckedCall
    began_at_ms: int
    """The time that its clock shows, as before."""
    results: tuple[ToolResultMessage, ...]
    """Results of the other calls of its reply."""
    served: tuple[ServedAnswer, ...]
    """Its recorded answers, in the order in which they came."""
    awaited: tuple[AwaitedAgain, ...]


@register_kind("rewind")
@dataclass(frozen=True, slots=True)
class Rewind:
    """Where a session goes on."""

    upto: int
    """How many messages of the conversation count."""
    again: tuple[UserMessage, ...] = ()
    """Reports of other children that came later; they follow."""
    program: RewoundProgram | None = None
    """None = the next report of a child starts a turn."""


@register_kind("replaced_child")
@dataclass(frozen=True, slots=True)
class ReplacedChild:
    """A child that a new one replaces."""

    session: str
    """The child that has reported."""
    task: str
    """Task of the new one; everything else is as for the other."""
    key: str
    """Key of its spawn."""


RecordedCall: TypeAlias = ServedAnswer | AwaitedAgain


@dataclass(slots=True)
class RecordedCalls:
    """What a run before recorded of a program's calls, each until a call of this run uses it."""

    by_digest: dict[str, OrderedDict[int, RecordedCall]] = field(default_factory=dict)
    """By what was called, and by the number of the call then."""

    @classmethod
    def of(cls, program: RewoundProgram) -> RecordedCalls:
        """Return all that is recorded of a program; calls that wait for a child come first."""
        recorded = cls()
        every: tuple[RecordedCall, ...] = (*program.awaited, *program.served)
        for each in every:
            recorded.by_digest.setdefault(each.digest, OrderedDict())[each.number] = each
        return recorded

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.by_digest)

    @property
    def awaited(self) -> list[AwaitedAgain]:
        """Calls that wait for the children which replace others."""
        left = (each for equal in self.by_digest.values() for each in equal.values())
        return [each for each in left if isinstance(each, AwaitedAgain)]

    def find(self, number: int, digest: str, used: Container[int] = ()) -> RecordedCall | None:
        """Return what is recorded of a call equal to the one with this number: the same call first, or None.

        Args:
            number: Of the call.
            digest: Of its tool and arguments.
            used: Numbers of recorded calls that are used already.
        """
        equal = self.by_digest.get(digest, OrderedDict[int, RecordedCall]())
        if number in equal and number not in used:
            return equal[number]
        return next((each for each in equal.values() if each.number not in used), None)

    def use(self, found: RecordedCall) -> None:
        """Forget what a call has used."""
        equal = self.by_digest[found.digest]
        del equal[found.number]
        if not equal:
            del self.by_digest[found.digest]
