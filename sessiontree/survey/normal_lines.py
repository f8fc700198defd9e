"""Normal lines: program text as it is compared: no comments, no content of strings, no white space.

Lines without a letter, lines of an import and repetitions of the line before do not count at all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from zlib import crc32

MAX_COMPARED_LINES = 16_000_000
"""Lines of a file beyond these are not compared."""

_IMPORT = re.compile(
    r"(?:import|package|using|use|include|require\w*|extern crate|# ?include|# ?import)\b"
    r"|from |export .* from |\} ?from "
)
_IMPORT_STARTS = frozenset("ipuref#}")
"""What the first character of an import can be."""


def normal_lines(masked_lines: Sequence[str], left_out: Collection[int]) -> tuple[list[int], list[int]]:
    """Return a hash of each line that counts, 1 to 2**32, and its number.

    Args:
        masked_lines: Lines without comments and strings, see ``syntax.masked``.
        left_out: Numbers of lines that don't count, such as those of documenting strings.

    Contract: pure; the same on every machine.
    """
    hashes: list[int] = []
    numbers: list[int] = []
    known: dict[str, int] = {}
    last = 0
    for number, line in enumerate(masked_lines[:MAX_COMPARED_LINES], start=1):
        value = known.get(line)
        if value is None:
            value = known[line] = _hash_of(line)
        if value and value != last and number not in left_out:
            hashes.append(value)
            numbers.append(number)
            last = value
    return hashes, numbers


def _hash_of(line: str) -> int:
    """Return a line's hash, 0 where it doesn't count."""
    words = line.split()
    text = "".join(words)
    # letters of plain text have two cases; of other text it is taken that there are some
    if not words or (text.lower() == text.upper() and text.isascii()):
        return 0
    if text[0] in _IMPORT_STARTS and _IMPORT.match(" ".join(words)):
        return 0
    return crc32(text.encode("utf-8", "surrogatepass")) + 1
