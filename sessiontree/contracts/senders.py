"""Senders: who says something to a session, and whom a turn acts for.

A program that hears several people says who spoke. Whether somebody owns the tree is never theirs to say: the
runtime looks them up in the list that Main's channel gave when the tree was made. Source: seed 001, section
7.3; DESIGN's rule that owners are the terminal, the creating program, and who a channel lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sessiontree.contracts.codec import recorded
from sessiontree.contracts.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Sender:
    """Who says something, as the program that heard it knows them.

    Raises:
        ConfigError: the id is empty, or a member is no text.
    """

    id: str
    """What the channel knows them by, unique among all who may speak; compared letter by letter."""
    name: str = ""
    """What people call them; decides nothing."""
    channel: str = ""
    """Where they spoke; decides nothing."""
    group: str = ""
    """Group they spoke in, for the policy's ``groups``; empty = the tree's own."""

    def __post_init__(self) -> None:
        """Check the members."""
        for member in (self.id, self.name, self.channel, self.group):
            if not isinstance(member, str):
                raise ConfigError(f"a sender's members must be text, not {member!r}")
        if not self.id.strip():
            raise ConfigError("a sender needs an id; leave the sender out where the program itself speaks")


@recorded("asker")
@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody a turn acts for, as judged when they spoke; stands in the journal.

    Where nobody is named, the creating program asked: an owner, in the tree's own group.
    """

    id: str
    name: str
    channel: str
    group: str
    is_owner: bool
    """Whether Main's channel lists them as an owner of the tree."""


def sender_of(given: Sender | str | None) -> Sender | None:
    """Return a sender as a program gives one, by value or by id.

    Raises:
        ConfigError: it is none.
    """
    if given is None or isinstance(given, Sender):
        return given
    return Sender(given)


def asker_of(sender: Sender, owners: Collection[str]) -> Principal:
    """Return a sender as judged by the ids of a tree's owners."""
    return Principal(sender.id, sender.name, sender.channel, sender.group, sender.id in owners)


def joined(*several: Iterable[Principal]) -> tuple[Principal, ...]:
    """Return everybody of several lists, each once, in the order first named."""
    return tuple(dict.fromkeys(asker for askers in several for asker in askers))
