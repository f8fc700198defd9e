"""A checked call and its approval: the request, the rules and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field

from sessiontree.contracts.recorded.codec import declare_sparse, register_kind
from sessiontree.contracts.recorded.senders import Principal, Sender
from sessiontree.contracts.settings.settings import StrictSettings
from sessiontree.contracts.values.glob import compile_glob
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.pointer import LeadsNowhere, find_value, split_pointer
from sessiontree.contracts.values.quick_dataclass import add_quick_pickle, dataclass


@register_kind("checked_call")
@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call with valid arguments that the policy allows, possibly after an approval."""

    key: str
    """``<turn>.<index>``, or ``call.<id>`` outside the transcript; unique in the session."""
    tool: str
    """Canonical name."""
    arguments: Mapping[str, JsonValue]
    """Final arguments, as approvers see them."""
    digest: str
    """Identifies tool, arguments and place; empty for a ReadOnly call that needs no approval."""
    tier: int
    repeatable: bool
    """Whether running it twice has the same effect as running it once."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class RejectedCall:
    """A call with invalid arguments."""

    key: str
    tool: str
    """Canonical name."""
    message: str
    field: str | None
    """JSON pointer to the invalid value, if known."""
    digest: str
    """Digest of the arguments as the model sent them."""
    schema: Mapping[str, JsonValue]
    """JSON Schema of the tool's parameters."""


RuleAnswer: TypeAlias = Literal["approve", "deny", "escalate"]
"""What a rule answers; ``escalate`` asks the next in line."""
Decision: TypeAlias = Literal["approved", "denied", "expired", "cancelled"]
_NOBODYS: Final = frozenset({"time", "stop", "nobody"})
"""What a decision is laid to where nobody made it; its reason says more."""
BY_POLICY: Final = frozenset({"mode", "rule"})
"""What a decision is laid to that a setting of the owner made, without asking anybody."""
ApprovalMode: TypeAlias = Literal["auto", "smart", "always", "never"]
"""How a tree decides on calls that need an approval; the option ``approvals`` says what each mode does."""


def describe_decision(decision: str, by: str) -> str:
    """Return a decision on a request for people, with whoever made it."""
    return decision if by in _NOBODYS else f"{decision} by {by}"


def _check_glob(pattern: str) -> str:
    if not compile_glob(pattern).can_fit:
        raise ValueError(f"glob {pattern!r} fits nothing: a range such as [z-a] holds no character")
    return pattern


def _check_pointer(pointer: str) -> str:
    split_pointer(pointer)
    return pointer


_Glob: TypeAlias = Annotated[str, AfterValidator(_check_glob)]
_Pointer: TypeAlias = Annotated[str, AfterValidator(_check_pointer)]


class Rule(StrictSettings):
    """One line of an approver given as data; the first rule that matches answers."""

    tool: _Glob = "*"
    """Glob over the tool's name (:mod:`sessiontree.contracts.values.glob`)."""
    where: Mapping[_Pointer, _Glob] = Field(default_factory=dict)
    """JSON pointer into the arguments to a glob over the value (its JSON text unless it is a string). A
    pointer is ``""``, all arguments, or begins with ``/``."""
    answer: RuleAnswer = "escalate"
    """What it answers where it matches."""

    def matches(self, tool: str, arguments: JsonValue) -> bool:
        """Return whether ``tool`` and every named one of ``arguments`` match; a missing value does not."""
        if not compile_glob(self.tool).fits(tool):
            return False
        return all(_is_match(arguments, pointer, glob) for pointer, glob in self.where.items())


def answer_by_rules(rules: tuple[Rule, ...], tool: str, arguments: JsonValue) -> RuleAnswer:
    """Return the answer of the first matching rule; ``escalate`` if no rule matches."""
    for rule in rules:
        if rule.matches(tool, arguments):
            return rule.answer
    return "escalate"


def _is_match(arguments: JsonValue, pointer: str, glob: str) -> bool:
    try:
        value = find_value(arguments, split_pointer(pointer))
    except LeadsNowhere:
        return False
    return compile_glob(glob).fits(value if isinstance(value, str) else dump_json(value))


@register_kind("precedent")
@dataclass(frozen=True, slots=True)
class Precedent:
    """What is known about a call that runs a command; it decides which later calls an answer covers."""

    is_harmless: bool
    """Whether everything it runs is known to change nothing; mode ``smart`` approves it."""
    shapes: tuple[str, ...]
    """Each program it runs with the shape of its arguments; an owner's *always* covers these. Empty = it
    can't be judged, and *always* approves only this call."""
    doubt: str
    """Why it can't be judged; empty if it can."""
    opens: str = declare_sparse("")
    """Why it may run files that its words do not name; empty if it can't."""


@register_kind("approval_question")
@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """A call that needs an approval, as the runtime passes it between its parts."""

    request_id: str
    session: str
    """The session that wants to make the call."""
    call: CheckedCall
    asked_by: tuple[Principal, ...] = ()
    """On whose behalf the call is made; empty = the creating program's."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that a person is asked to allow."""

    request_id: str
    session_id: str
    """The session that wants to make the call."""
    tool: str
    arguments: Mapping[str, JsonValue]
    """The final arguments, complete."""
    digest: str
    """Identifies tool, arguments and place; checked again before the call runs."""
    tier: str
    """Label of the call's tier."""
    expires_at_ms: int
    asked: str
    """The session whose channel shows it."""
    covers: tuple[str, ...] | None = None
    """What an *always* would cover. For a call that runs a command: programs with the shape of their
    arguments; empty = only this call. None = every later call of the tool."""
    asked_by: tuple[Principal, ...] = ()
    """On whose behalf the call is made: everyone whose messages led to it; empty = the creating program."""
    opens: str = ""
    """Why the command may run files that its words do not name; empty = it can't. An approval of such a
    command does not say what those files hold. It ends with any change to a file of the workspace."""


APPROVER_ERROR = "approver error"
"""Recorded as the decider if an approver failed; such a denial binds no later call."""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """What a person answered."""

    approve: bool
    reason: str = ""
    always: bool = False
    """Also approve every later call of the same tool in this tree. For a tool that runs commands: only calls
    that run the same programs with arguments of the same shape."""
    sender: Sender | None = None
    """Who answered, if several people can; the answer counts only if the channel lists them as an owner.
    None = the channel itself vouches for the person, as a terminal does."""
