"""Ranking: which of the places memory found answer a question best.

Memory's own order counts words alike wherever they stand. Here a word in a definition's name counts for more
than one in a list of calls, and a rare word for more than one that half of all places have. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sessiontree.survey.entry import named_in, summary_of
from sessiontree.survey.identifiers import words_of
from sessiontree.survey.kin import kin_stems
from sessiontree.survey.question import Question
from sessiontree.survey.stems import stem

_NAME, _SUMMARY, _AROUND, _FILE, _PROSE, _FOLDER, _REST = 1.0, 0.8, 0.7, 0.6, 0.45, 0.35, 0.25
"""What a word of the question is worth by where it stands: own name, summary, the names around, file name,
a section's text, folders, head and lists."""
_SECOND = 0.25
"""What a word is worth of standing in a second place too."""
_MEMORY = 0.35
"""What memory's own order is worth beside all words together."""
_TOGETHER = 0.25
"""What it is worth that words stand together as they do in the question."""
_TOLD = 0.7
"""What a place is worth after each better one with the same name and summary."""
_KIN = 0.6
"""What a word is worth that often stands for the one asked for."""
_ALIKE = 0.7
"""What a word of the same beginning is worth."""
_ALIKE_CHARS = 5
_TESTS = frozenset(("test", "tests", "testing", "spec", "specs", "fixtures", "conftest", "testdata"))
_BESIDE_TESTS, _FOR_FILES, _FOR_PROSE, _FOR_SCRIPTS = 0.5, 0.85, 0.75, 0.85
_SCRIPTS = frozenset(
    ("benchmarks", "benchmark", "examples", "example", "demo", "scripts", "docs", "vendor", "_vendor")
)


@dataclass(frozen=True, slots=True)
class RankedPlace:
    """One place memory names."""

    source: str
    """Path and lines, as the record says."""
    path: str
    first: int
    last: int
    text: str
    """The record's."""
    score: float
    """What memory gave it for the whole question, 0 to 1."""

    @property
    def kind(self) -> str:
        """``function``, ``class``, ``file``, ``section``; empty for what no survey stored."""
        return named_in(self.text, self.path)[0]

    @property
    def name(self) -> str:
        """Its qualified name."""
        return named_in(self.text, self.path)[1]


def ranked(found: Iterable[RankedPlace], question: Question) -> list[tuple[float, RankedPlace]]:
    """Return the places with what each is worth, 0 to about 1, best first; ties by source.

    Args:
        found: Each place once.
        question: What is asked.
    """
    places = [(one, _places_of(one)) for one in found if one.kind]
    wanted = {stem(word): None for word in question.words}
    common = Counter(word for _, where in places for word in wanted if word in where)
    weights = {word: math.log(1 + (len(places) + 1) / (common[word] + 0.5)) for word in wanted}
    worth = [(_worth(one, where, weights, question), one) for one, where in places]
    return _each_once(sorted(worth, key=lambda item: (-item[0], item[1].source)))


def _each_once(best: list[tuple[float, RankedPlace]]) -> list[tuple[float, RankedPlace]]:
    """Return the places in a new order: of those with one name and summary the first alone stays in place."""
    told: Counter[tuple[str, str]] = Counter()
    lowered = []
    for worth, one in best:
        said = one.name.rpartition(".")[2], summary_of(one.text)
        lowered.append((worth * _TOLD ** told[said], one))
        told[said] += 1
    return sorted(lowered, key=lambda item: (-item[0], item[1].source))


def _worth(
    one: RankedPlace, where: Mapping[str, float], weights: Mapping[str, float], question: Question
) -> float:
    total = sum(weights.values()) or 1.0
    kin = kin_stems(weights)
    standing = {
        word: max([_standing(word, where), *(_KIN * where.get(other, 0.0) for other in kin[word])])
        for word in weights
    }
    covered = sum(weight * standing[word] for word, weight in weights.items()) / total
    there = sum(weight for word, weight in weights.items() if standing[word]) / total
    together = _together(one, question)
    covered *= (1 + there) / 2
    worth = (covered + _MEMORY * one.score + _TOGETHER * together) / (1 + _MEMORY + _TOGETHER)
    if any(
        name.lower() in {one.name.lower(), one.name.rpartition(".")[2].lower()} for name in question.names
    ):
        worth += 0.5
    parts = set(words_of(one.path))
    if not question.about_tests and parts & _TESTS:
        worth *= _BESIDE_TESTS
    elif parts & _SCRIPTS and not (parts & _SCRIPTS & set(question.words)):
        worth *= _FOR_SCRIPTS
    if one.kind == "file":
        worth *= _FOR_FILES
    if one.kind == "section" and not question.about_prose:
        worth *= _FOR_PROSE
    return worth


def _together(one: RankedPlace, question: Question) -> float:
    """Return which share of the question's neighbours are neighbours in name or summary too."""
    if not question.pairs:
        return 0.0
    said = [stem(word) for word in words_of(f"{one.name} {summary_of(one.text)}")]
    there = set(pairwise(said))
    return sum((stem(a), stem(b)) in there for a, b in question.pairs) / len(question.pairs)


def _standing(word: str, where: Mapping[str, float]) -> float:
    if word in where:
        return where[word]
    if len(word) < _ALIKE_CHARS:
        return 0.0
    start = word[:_ALIKE_CHARS]
    return max((_ALIKE * value for other, value in where.items() if other.startswith(start)), default=0.0)


def _places_of(one: RankedPlace) -> dict[str, float]:
    """Return what each word of a place is worth, by its stem."""
    lines = one.text.split("\n")
    name = one.name
    around, _, own = name.rpartition(".") if one.kind != "file" else ("", "", "")
    folder, _, file = one.path.rpartition("/")
    fields: Sequence[tuple[float, Collection[str]]] = (
        (_NAME, words_of(own) if one.kind != "section" else words_of(name)),
        (_SUMMARY if one.kind != "section" else _PROSE, words_of(summary_of(one.text))),
        (_AROUND, words_of(around)),
        (_FILE, words_of(file)),
        (_FOLDER, words_of(folder)),
        (_REST, words_of(" ".join(lines[2:]))),
    )
    where: dict[str, float] = {}
    for value, words in fields:
        for word in {stem(each) for each in words}:
            best = where.get(word, 0.0)
            where[word] = max(best, value) + _SECOND * min(best, value)
    return where
