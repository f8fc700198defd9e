"""Consent: which approval mode a survey runs in, why, and who is asked."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TextIO, cast, get_args

from sessiontree.channels.terminal import TerminalChannel
from sessiontree.contracts.approvals import ApprovalMode
from sessiontree.contracts.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Consent:
    """A mode and where it comes from."""

    mode: ApprovalMode
    why: str


def choose(asked: str | None, reads: TextIO | None) -> Consent:
    """Return the mode asked for; without one ``always`` at a terminal, ``auto`` without.

    Raises:
        ConfigError: there is no such mode.
    """
    if asked is not None:
        if asked not in get_args(ApprovalMode):
            raise ConfigError(f"--approve {asked!r} is none of {', '.join(get_args(ApprovalMode))}")
        return Consent(cast("ApprovalMode", asked), f"--approve {asked}")
    if reads is not None and reads.isatty():
        return Consent("always", "the input is a terminal")
    return Consent("auto", "the input is no terminal")


def channel_of(reads: TextIO | None, writes: TextIO) -> TerminalChannel:
    """Return the channel of Main: whoever answers on the input; where it has ended, the answer is no."""
    return TerminalChannel(reads if reads is not None else io.StringIO(), writes)
