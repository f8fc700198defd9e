"""Senders: who sends a message to a session, and on whose behalf a turn acts.

A program with several users names the sender of each message. It can't claim that a sender owns the tree:
the runtime looks senders up in the list that Main's channel gave when the tree was created. Source: seed 001,
section 7.3; DESIGN's rule that owners are the terminal, the creating program, and those whom a channel lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.codec import register_kind
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a message, as the program knows them.

    Raises:
        ConfigError: the id is empty, or a member is not text.
    """

    id: str
    """The channel's id of the sender, unique among all senders; compared exactly."""
    name: str = ""
    """Name for people; it has no effect."""
    channel: str = ""
    """Where they sent the message; it has no effect."""
    group: str = ""
    """Group in which they sent it, for the policy's ``groups``; empty = the tree's own."""

    def __post_init__(self) -> None:
        for member in (self.id, self.name, self.channel, self.group):
            if not isinstance(member, str):
                raise ConfigError(f"a sender's members must be text, not {member!r}")
        if not self.id.strip():
            raise ConfigError("Sender(id=…): the id is empty; omit the sender if the program itself speaks")


@register_kind("principal")
@dataclass(frozen=True, slots=True)
class Principal:
    """A person on whose behalf a turn acts, as judged when they sent the message; it is journaled.

    If no sender is named, it is the creating program: an owner, in the tree's own group.
    """

    id: str
    name: str
    channel: str
    group: str
    is_owner: bool
    """Whether Main's channel lists them as an owner of the tree."""


def resolve_sender(given: Sender | str | None) -> Sender | None:
    """Return the sender that a program gives by value or by id.

    Raises:
        ConfigError: it is not valid.
    """
    if given is None or isinstance(given, Sender):
        return given
    return Sender(given)


def resolve_asker(sender: Sender, owners: Collection[str]) -> Principal:
    """Return the principal of a sender, given the ids of a tree's owners."""
    return Principal(sender.id, sender.name, sender.channel, sender.group, sender.id in owners)


def join_principals(*several: Iterable[Principal]) -> tuple[Principal, ...]:
    """Return all principals of several lists without duplicates, in the order of first occurrence."""
    return tuple(dict.fromkeys(chain.from_iterable(several)))
