"""Kin: words that programs and the people who ask about them use for the same thing."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from sessiontree.survey.stems import stem

_GROUPS = """
    again attempt repeat retry
    allow approve grant permit
    ask prompt question request
    begin boot launch open start
    bound cap limit maximum most
    build create make new
    catch handle
    change edit modify update
    check ensure validate verify
    choose pick select
    clean sanitise scrub strip
    compute calculate count measure
    convert transform translate turn
    crash die exit fail kill lost
    cut shorten trim truncate
    decide determine judge
    delete drop erase forget remove
    deny refuse reject
    display print render show
    end close finish shutdown stop
    find look search seek
    fetch load read
    keep persist save store write
    parent owner
    post emit publish send
    confine isolate jail sandbox
    divide partition share split
    join combine merge
    pause sleep wait
    dir directory folder
    arg argument option param parameter
    env environment
    config configuration setting
"""
_MOST = 5


@cache
def _groups() -> dict[str, tuple[str, ...]]:
    kin: dict[str, list[str]] = {}
    for line in _GROUPS.strip().splitlines():
        words = line.split()
        for word in words:
            kin.setdefault(stem(word), []).extend(other for other in words if other != word)
    return {word: tuple(dict.fromkeys(others))[:_MOST] for word, others in kin.items()}


def kin_of(word: str) -> tuple[str, ...]:
    """Return words that may stand where this one is asked for; none for most words."""
    return _groups().get(stem(word), ())


def kin_stems(stems: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the stems of the kin of each of these stems."""
    return {each: tuple(map(stem, _groups().get(each, ()))) for each in stems}
