"""Approvals: requests that climb, rules that answer them, and what a person may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from pydantic import Field

from sessiontree.contracts.codec import recorded
from sessiontree.contracts.jsonable import JsonValue, dump_json
from sessiontree.contracts.senders import Principal, Sender
from sessiontree.contracts.settings import StrictSettings

Answer: TypeAlias = Literal["approve", "deny", "escalate"]
Decision: TypeAlias = Literal["approved", "denied", "expired", "cancelled"]
ApprovalMode: TypeAlias = Literal["auto", "smart", "always", "never"]


class Rule(StrictSettings):
    """One line of an approver given as data; the first rule that matches answers."""

    tool: str = "*"
    """Glob over the tool's name."""
    where: Mapping[str, str] = Field(default_factory=dict)
    """JSON pointer into the arguments to a glob over the value (its JSON text unless it is a string)."""
    answer: Answer = "escalate"

    def matches(self, tool: str, arguments: JsonValue) -> bool:
        """Whether tool and every named argument fit; a pointer to nothing does not fit."""
        if not fnmatchcase(tool, self.tool):
            return False
        return all(_fits(arguments, pointer, glob) for pointer, glob in self.where.items())


def answer_by_rules(rules: tuple[Rule, ...], tool: str, arguments: JsonValue) -> Answer:
    """Return the first matching rule's answer, ``escalate`` where none matches."""
    for rule in rules:
        if rule.matches(tool, arguments):
            return rule.answer
    return "escalate"


def _fits(arguments: JsonValue, pointer: str, glob: str) -> bool:
    value = arguments
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return False
    return fnmatchcase(value if isinstance(value, str) else dump_json(value), glob)


@recorded("precedent")
@dataclass(frozen=True, slots=True)
class Precedent:
    """What is known of a call that runs a command: how far an answer to it reaches beyond this one call."""

    is_harmless: bool
    """Whether all it runs is known to change nothing; mode ``smart`` says yes to it."""
    shapes: tuple[str, ...]
    """Each program it runs with the shape of its arguments; an owner's *always* covers these. Empty: it can't
    be judged, and *always* is a plain yes."""
    doubt: str
    """Why it can't be judged; empty = it can."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What somebody is asked to allow."""

    request_id: str
    session_id: str
    """The session that wants to make the call."""
    tool: str
    arguments: Mapping[str, JsonValue]
    """The final arguments, complete."""
    digest: str
    """Names tool, arguments and place; checked again before the call runs."""
    tier: str
    """Label of the call's tier."""
    expires_at_ms: int
    asked: str
    """The session whose channel shows it."""
    covers: tuple[str, ...] | None = None
    """What an *always* would cover, for a call that runs a command: programs with the shape of their
    arguments; empty: this call alone. None = every later call of the tool."""
    asked_by: tuple[Principal, ...] = ()
    """Whom the call is for: everybody whose words it follows from; empty = the creating program."""


APPROVER_ERROR = "approver error"
"""Recorded as who said no where an approver failed: nobody did, so that it binds nothing."""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """What a person answered."""

    approve: bool
    reason: str = ""
    always: bool = False
    """Approve every later call of the same tool in this tree too; of a tool that runs commands, those alone
    that run the same programs with arguments of the same shape."""
    sender: Sender | None = None
    """Who answered, where several people can; counts only if the channel lists them as an owner. None = the
    channel itself, such as a terminal, vouches for whoever answers."""
