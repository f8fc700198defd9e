"""Winnowing: which few of a sequence's hashes stand for all of it.

Of every ``window`` hashes in a row the smallest is kept, of equal ones the last. So two sequences that share
``window`` hashes in a row keep one in common, wherever it stands in them.

Each hash has a reach: the length of the longest run around it in which it is the one that would be kept. It
is kept for a window exactly when it reaches that far, so what a larger window keeps is part of what a smaller
one keeps, and thinning needs no more than a look at the reaches.

Source: Schleimer, Wilkerson, Aiken, Winnowing: Local Algorithms for Document Fingerprinting, SIGMOD 2003.
"""

from __future__ import annotations

from collections.abc import Sequence


def reaches(hashes: Sequence[int]) -> list[int]:
    """Return the reach of each hash: at least 1, at most the number of hashes.

    Contract: pure; linear.
    """
    found = [0] * len(hashes)
    before = [-1] * len(hashes)
    waiting: list[int] = []  # places whose run has not ended; their hashes ascend strictly
    for place, value in enumerate(hashes):
        while waiting and hashes[waiting[-1]] >= value:
            ended = waiting.pop()
            found[ended] = place - before[ended] - 1
        if waiting:
            before[place] = waiting[-1]
        waiting.append(place)
    for ended in waiting:
        found[ended] = len(hashes) - before[ended] - 1
    return found


def window_for(found: Sequence[int], window: int, most: int) -> int:
    """Return the window, doubled until at most so many are kept.

    Args:
        found: The reaches of a sequence's hashes.
        window: The smallest window; at least 1.
        most: How many may be kept; at least 1.
    """
    kept = sum(reach >= window for reach in found)
    while kept > most:
        window *= 2
        kept = sum(reach >= window for reach in found)
    return window
