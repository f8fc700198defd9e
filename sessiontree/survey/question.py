"""Question: what a person asks, as the words that count, and the searches that may find an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from sessiontree.survey.identifiers import has_inner_words, words_of
from sessiontree.survey.kin import kin_of

MAX_QUESTION_CHARS = 2_000
MAX_WORDS = 12
"""Most words of a question that count: the first of them."""

_EMPTY_WORDS = """
    a about after all also am an and any are as at be because been before being between both but by can
    cannot code could did do does doing done don for from get gets getting give given gives go goes
    happen happened happens has have having he her here him his how i if in into is it its itself just
    let like look made make makes making me mean means might more most must my no not of off on one onto
    or other our out over own part place places please put puts same say says see she should show shows
    so some something such take takes than that the their them then there these they thing things this
    those through to too under until up upon us use used uses using via was way we were what when where
    whether which while who whom whose why will with within without would you your become becomes called
    implemented handled handle handles happening located find function method class file module defined
    definition
"""
_EMPTY = frozenset(_EMPTY_WORDS.split())
_NAME = re.compile(r"`([^`\n]{1,200})`|([A-Za-z_][\w.]*[\w])")
_ABOUT_TESTS = frozenset(("test", "tests", "tested", "testing", "fixture", "fixtures", "unittest", "pytest"))
_ABOUT_PROSE = frozenset(
    ("documented", "documentation", "docs", "readme", "changelog", "described", "promised")
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    text: str
    words: tuple[str, ...]
    """Those that count, in small letters, each once, in order."""
    pairs: tuple[tuple[str, str], ...]
    """Words that count and stand side by side."""
    names: tuple[str, ...]
    """Identifiers as they were written, such as ``maxRetries`` or ``Cache.get``."""
    about_tests: bool
    """Whether tests are asked for."""
    about_prose: bool
    """Whether documentation is asked for."""


def question_of(text: str) -> Question:
    """Return a question's words and names; where nothing but empty words is asked, those count."""
    said = words_of(text)
    counting = _once(word for word in said if word not in _EMPTY and len(word) > 1) or _once(said)
    names = _once(quoted or bare for quoted, bare in _NAME.findall(text) if quoted or _is_name(bare))
    return Question(
        text,
        counting[:MAX_WORDS],
        tuple(pair for pair in pairwise(said) if set(pair) <= set(counting)),
        names[:MAX_WORDS],
        not _ABOUT_TESTS.isdisjoint(said),
        not _ABOUT_PROSE.isdisjoint(said),
    )


def queries_of(question: Question) -> tuple[str, ...]:
    """Return what memory is asked: all words together, each name, each word with its kin; none twice."""
    together = " ".join((*question.names, *question.words))
    return _once((together, *question.names, *(" ".join((word, *kin_of(word))) for word in question.words)))


def _is_name(word: str) -> bool:
    return "_" in word.strip("_") or "." in word.strip(".") or has_inner_words(word[0].lower() + word[1:])


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
