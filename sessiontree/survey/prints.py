"""Prints: the fingerprints by which stretches of one file are found again in others.

A print stands for eight normal lines in a row (``normal_lines.py``); winnowing decides which are kept
(``winnowing.py``). A file's prints are one short text, so that they can travel and be kept.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.survey.normal_lines import normal_lines
from sessiontree.survey.winnowing import reaches, window_for

PRINT_LINES = 8
"""Normal lines of one print: nothing shorter is ever found."""
WINDOW = 16
"""Of so many prints in a row one is kept; of long files of more."""
MAX_PRINTS = 200
"""Most prints kept of one file."""
MAX_WINDOW = 1 << 16
"""No reach is told apart beyond this: a file keeps one print, or those that never go."""
MIN_DIFFERENT = 5
"""Different lines a print must have: fewer are a table or a list."""

_MODULUS = (1 << 61) - 1
_BASE = 1_000_003_579_121
_TOP = pow(_BASE, PRINT_LINES, _MODULUS)
_MAX_REACH = 0xFFFF
_MAX_SPAN = 0xFFFF
_FORM = struct.Struct(">5sHHBHH")
_GENERATED_HEAD_CHARS = 3_000
_GENERATED = re.compile(
    r"@generated\b|\bdo not (?:edit|modify)\b|\bauto(?:matically)?[- ]?generated\b"
    r"|\bgenerated (?:by|from|with)\b",
    re.IGNORECASE,
)


class Print(NamedTuple):
    """Eight normal lines of a file."""

    hash: bytes
    """Five bytes: the same for the same lines."""
    reach: int
    """See ``winnowing.py``; 65,535 stands for that or more."""
    sum: int
    """Sum of the hashes of all normal lines before it, modulo 65,536: what lies between two prints."""
    first: int
    """Line the first of them stands on, from 1."""
    last: int
    """Line the last of them stands on."""


class FilePrints(BaseModel):
    """The prints of one file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    lines: int = Field(ge=1)
    """Lines of the whole file."""
    digest: str
    """The same for files with the same bytes."""
    window: int = Field(ge=1)
    """Of so many prints in a row at least one is here."""
    prints: str
    """By line, 14 bytes each, in base64."""

    def unpacked(self, window: int = 1) -> list[Print]:
        """Return the prints a window keeps, by line.

        Raises:
            ValueError: the text is no base64, or of no whole number of prints.
        """
        data = base64.b64decode(self.prints, validate=True)
        if len(data) % _FORM.size:
            raise ValueError(f"{len(data)} bytes are no whole number of prints")
        return [
            Print(hashed, reach, sum_, first := high << 16 | low, first + span)
            for hashed, reach, sum_, high, low, span in _FORM.iter_unpack(data)
            if reach >= min(window, _MAX_REACH)
        ]

    def thinned(self, window: int) -> FilePrints:
        """Return those a larger window keeps."""
        if window <= self.window:
            return self
        return self.model_copy(update={"window": window, "prints": _packed(self.unpacked(window))})


def is_generated(text: str) -> bool:
    """Return whether a file's beginning says that a program wrote it."""
    return _GENERATED.search(text, 0, _GENERATED_HEAD_CHARS) is not None


def prints_of(
    path: str, data: bytes, masked_lines: Sequence[str], left_out: Collection[int]
) -> FilePrints | None:
    """Return a file's prints, None where it has fewer than eight normal lines.

    Args:
        path: Its path.
        data: Its bytes.
        masked_lines: Its lines without comments and strings.
        left_out: Numbers of lines that don't count.

    Contract: pure; linear in the number of lines; the same on every machine.
    """
    lines, numbers = normal_lines(masked_lines, left_out)
    if len(lines) < PRINT_LINES:
        return None
    hashes = _hashes(lines)
    found = reaches(hashes)
    whole = len(hashes)
    # in a file shorter than the window the smallest of all stands for it
    window = window_for(found, min(WINDOW, whole), MAX_PRINTS)
    sums = list(accumulate(lines, initial=0))
    kept = []
    for place, reach in enumerate(found):
        if reach >= window:
            first, last = numbers[place], numbers[place + PRINT_LINES - 1]
            different = len(set(lines[place : place + PRINT_LINES]))
            if different >= MIN_DIFFERENT and last - first <= _MAX_SPAN:
                reach = _MAX_REACH if reach == whole else min(reach, _MAX_REACH)
                hashed = (hashes[place] & 0xFF_FFFF_FFFF).to_bytes(5, "big")
                kept.append(Print(hashed, reach, sums[place] & 0xFFFF, first, last))
    return FilePrints(
        path=path,
        lines=len(masked_lines),
        digest=hashlib.blake2b(data, digest_size=8).hexdigest(),
        window=max(WINDOW, window),
        prints=_packed(kept),
    )


def _hashes(lines: Sequence[int]) -> list[int]:
    """Return a hash of every eight lines in a row.

    Source: Karp, Rabin, Efficient Randomized Pattern-Matching Algorithms, IBM Journal 31 (2), 1987.
    """
    value = 0
    found = []
    for line in lines[:PRINT_LINES]:
        value = (value * _BASE + line) % _MODULUS
    found.append(value)
    for gone, come in zip(lines, lines[PRINT_LINES:], strict=False):
        value = (value * _BASE + come - gone * _TOP) % _MODULUS
        found.append(value)
    return found


def _packed(prints: Iterable[Print]) -> str:
    data = b"".join(
        _FORM.pack(one.hash, one.reach, one.sum, one.first >> 16, one.first & 0xFFFF, one.last - one.first)
        for one in prints
    )
    return base64.b64encode(data).decode("ascii")
