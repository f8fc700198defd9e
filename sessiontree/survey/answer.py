"""Answer: the tools that find where a question is answered: from what surveys left in memory, or from files.

Memory ranks by words and vectors. The best hits are compared with the question once more: where the words
are counts, how rare they are, and whether the place is code, a test, or release notes.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sessiontree import (
    MEMORY,
    READER,
    ExecutionError,
    MemoryQuery,
    PermissionTier,
    SessionKind,
    ToolContext,
    ToolError,
    tool,
)
from sessiontree.survey.earlier import find_remembered_surveys
from sessiontree.survey.source.census import CensusPart
from sessiontree.survey.source.checkout import FileReader, read_bytes, walk
from sessiontree.survey.source.file_process import FileProcess
from sessiontree.survey.source.question import (
    SurveyQuestion,
    build_queries,
    collect_stems,
    find_synonyms,
    find_translated_language,
    parse_question,
    stem_word,
)
from sessiontree.survey.source.records import (
    CODE_TYPE,
    OTHER_TYPE,
    SurveyEntry,
    build_excerpt,
    determine_audience,
    find_nearest_entry,
    parse_entry,
)

MAX_PLACES = 20
"""Most places of one answer."""
GOOD_COVERAGE = 0.5
"""Least share of a question, by the weight of its words, that a good answer has words for."""
GOOD_WORTH = 0.3
_HITS = 100
_HITS_PER_WORD = 50
_SPARE = 3
"""Places looked at for each one wanted: some are gone, or the same as another."""
_PARSED_FILES = 60
"""Files that are parsed for one question where nothing was surveyed."""
_WORST = 0.5
"""What is worth less than this share of the best place is not shown."""
_MAX_LINE_CHARS = 160
_SHOWN = ("source", "path", "first", "last", "kind", "name", "summary")

_FIELDS = {
    "name": 1.0,
    "summary": 0.8,
    "file": 0.65,
    "around": 0.6,
    "more": 0.5,
    "signature": 0.5,
    "calls": 0.4,
}
"""What a word of the question counts for where it is found."""
_AUDIENCES = {"code": 1.0, "test": 0.55, "example": 0.6, "history": 0.25}
_ASKED_FOR = 0.85
"""What files are worth that the question asks for by name, such as tests."""
_KINDS = {"function": 1.0, "class": 0.97, "constant": 0.9, "section": 0.6, "file": 0.55}
_EXAMPLE = 0.2
"""What a word with a digit in it weighs: in a question it is an example."""


class AnswerPlace(CensusPart):
    """One place that answers."""

    source: str
    """Path and lines, such as ``src/app.py#L3-L9``."""
    path: str
    first: int
    """First line as it is now, from 1."""
    last: int
    kind: str
    """``function``, ``class``, ``constant``, ``section`` or ``file``."""
    name: str
    """Qualified name; headings of a section; path of a file."""
    summary: str
    """What its file says about it; empty where it says nothing."""
    score: float
    """How well it fits, 0 to about 1."""
    changed: bool
    """Whether it is another text now than when it was surveyed."""
    excerpt: tuple[tuple[int, str], ...]
    """Lines of it as they are now: number and text; where numbers jump, lines were left out."""


class Answer(CensusPart):
    """What was found."""

    surveyed: bool
    """Whether memory knows any survey of the workspace."""
    places: tuple[AnswerPlace, ...] = ()
    """Best first; none where nothing fits well enough."""
    gone: int = 0
    """Good places that are no longer there."""


@tool(tier=PermissionTier.READ_ONLY, kinds=[SessionKind.MAIN], capabilities=[READER, MEMORY])
async def find_answer(question: str, ctx: ToolContext, limit: int = 3) -> Answer:
    """Find the definitions and sections that answer a question about the surveyed workspace.

    Args:
        question: Plain words, or names.
        limit: Most places, 1 to 20.
        ctx: What the session may use.
    """
    surveys = await find_remembered_surveys(ctx)
    if not surveys:
        return Answer(surveyed=False)
    asked = parse_question(question)
    outdated = {one.tree for one in surveys[:-1]}
    found: dict[tuple[str, str], tuple[SurveyEntry, float]] = {}
    for number, query in enumerate(build_queries(asked)):
        most = _HITS if number == 0 else _HITS_PER_WORD
        for kind in (CODE_TYPE, OTHER_TYPE):
            for hit in await ctx.require(MEMORY).search(MemoryQuery(query, limit=most, types=(kind,))):
                entry = parse_entry(hit.record.text, hit.record.source or "")
                if entry is not None and hit.record.scope.tree_id not in outdated:
                    # what memory thinks of a single word says nothing of the whole question
                    score = hit.score if number == 0 else 0.0
                    found.setdefault((entry.path, hit.record.text), (entry, score))
    return await asyncio.to_thread(_choose_best, ctx.require(READER), list(found.values()), asked, limit)


@tool(tier=PermissionTier.READ_ONLY, kinds=[SessionKind.MAIN], capabilities=[READER])
def search_files(question: str, ctx: ToolContext, limit: int = 3) -> Answer:
    """Find the definitions and sections that answer a question, in files that nobody has surveyed.

    Args:
        question: Plain words, or names.
        limit: Most places, 1 to 20.
        ctx: What the session may use.
    """
    reader, asked = ctx.require(READER), parse_question(question)
    roots = [tuple(map(stem_word, (word, *find_synonyms(word)))) for word in asked.words]
    held: dict[str, list[bool]] = {}
    for file in walk(reader, stop=lambda: ctx.cancelled).files:
        if ctx.cancelled:
            raise ExecutionError("the search was stopped; call it again")
        with contextlib.suppress(ToolError, OSError):  # what can't be read has no answer
            text = (file.path.encode() + read_bytes(reader, file.path)[0]).decode("latin-1").lower()
            held[file.path] = [any(root in text for root in kin) for kin in roots]
    counts = [sum(has) for has in zip(*held.values(), strict=True)]
    weights = [math.log(1.0 + len(held) / (1.0 + count)) for count in counts]
    total = sum(weights) or 1.0
    shares = {
        path: sum(weight for weight, one in zip(weights, has, strict=True) if one) / total
        for path, has in held.items()
    }
    likely = sorted((path for path, share in shares.items() if share), key=lambda path: (-shares[path], path))
    with FileProcess(reader) as process:
        found = [
            (entry, shares[path])
            for path in likely[:_PARSED_FILES]
            for entry in process.read_entries(path)[0]
        ]
    return _choose_best(reader, found, asked, limit).model_copy(update={"surveyed": False})


def _choose_best(
    reader: FileReader, found: Sequence[tuple[SurveyEntry, float]], asked: SurveyQuestion, limit: int
) -> Answer:
    """Return the places that answer best, as they are now. Blocks."""
    best = [one for one in rank_records(found, asked) if one.is_good]
    worth = [one for one in best if one.worth >= _WORST * best[0].worth][: limit * _SPARE]
    places = _locate_places(reader, worth)
    known: dict[tuple[str, str, int], AnswerPlace] = {}
    for place in places:
        if place is not None:
            known.setdefault((place.path, place.name, place.first), place)
    return Answer(surveyed=True, places=tuple(known.values())[:limit], gone=places.count(None))


def _locate_places(reader: FileReader, found: Sequence[RankedEntry]) -> list[AnswerPlace | None]:
    """Return where places are now, with their lines; None for those that are gone. Blocks."""
    with FileProcess(reader) as process:
        files = {
            path: process.read_source_and_entries(path)
            for path in dict.fromkeys(one.entry.path for one in found)
        }
    places: list[AnswerPlace | None] = []
    for one in found:
        (file, entries), before = files[one.entry.path], one.entry
        now = find_nearest_entry(entries, before)
        if now is None:
            places.append(None)
            continue
        is_same = now.text == before.text and now.last - now.first == before.last - before.first
        lines = tuple((number, text[:_MAX_LINE_CHARS]) for number, text in build_excerpt(file, now))
        members = {name: getattr(now, name) for name in _SHOWN}
        score = round(one.worth, 3)
        places.append(AnswerPlace(**members, score=score, changed=not is_same, excerpt=lines))
    return places


@dataclass(frozen=True, slots=True)
class RankedEntry:
    """A record, and how well it answers."""

    entry: SurveyEntry
    worth: float
    """0 to about 1; comparable within one question."""
    coverage: float
    """Share of the question, by the weight of its words, that the record has words for: 0 to 1."""

    @property
    def is_good(self) -> bool:
        """Whether it answers well enough to be shown."""
        return self.coverage >= GOOD_COVERAGE and self.worth >= GOOD_WORTH


@dataclass(frozen=True, slots=True)
class _WantedWord:
    """A word of the question in the forms in which it is looked for."""

    root: str
    kin: frozenset[str]

    def measure_likeness(self, roots: frozenset[str]) -> float:
        """Return how well it is among words: 1 itself, less for a longer form or another word for it."""
        if self.root in roots:
            return 1.0
        own, size = self.root, len(self.root)
        near = (one for one in roots if min(size, len(one)) >= 4 and abs(size - len(one)) <= 5)
        if any(one.startswith(own) or own.startswith(one) for one in near):
            return 0.8
        return 0.5 if not self.kin.isdisjoint(roots) else 0.0


def rank_records(
    candidates: Sequence[tuple[SurveyEntry, float]], question: SurveyQuestion
) -> list[RankedEntry]:
    """Return the records by how well they answer, best first; equal ones by place.

    Args:
        candidates: Records, each with what memory thinks of it, 0 to 1.
        question: What is asked.
    """
    wanted = [
        _WantedWord(stem_word(word), frozenset(map(stem_word, find_synonyms(word))))
        for word in question.words
    ]
    fields = [_collect_fields(entry) for entry, _ in candidates]
    held = [frozenset[str]().union(*texts.values()) for texts in fields]
    weights = [(one, _weigh(one, held)) for one in wanted]
    pairs = zip(candidates, fields, strict=True)
    found = [_score_entry(entry, score, texts, question, weights) for (entry, score), texts in pairs]
    return sorted(found, key=lambda one: (-one.worth, one.entry.path, one.entry.first))


def _collect_fields(one: SurveyEntry) -> dict[str, frozenset[str]]:
    around, _, last = one.name.rpartition("." if one.kind != "section" else " / ")
    folder, _, file = one.path.rpartition("/")
    texts = {
        "name": last if one.kind != "file" else "",
        "around": f"{around} {folder}",
        "file": f"{file.partition('.')[0]} {find_translated_language(one.path)}",
        "summary": one.summary,
        "signature": one.signature,
        "more": one.more,
        "calls": one.calls,
    }
    return {name: collect_stems(text) for name, text in texts.items()}


def _weigh(one: _WantedWord, held: Sequence[frozenset[str]]) -> float:
    """Return what a word weighs: the fewer records hold it, the more."""
    count = sum(one.root in words for words in held)
    return math.log(2.0 + len(held) / (1.0 + count)) * (_EXAMPLE if any(map(str.isdigit, one.root)) else 1.0)


def _score_entry(
    one: SurveyEntry,
    score: float,
    texts: Mapping[str, frozenset[str]],
    question: SurveyQuestion,
    weights: Sequence[tuple[_WantedWord, float]],
) -> RankedEntry:
    total = sum(weight for _, weight in weights) or 1.0
    lexical = coverage = 0.0
    for word, weight in weights:
        best = max(share * word.measure_likeness(texts[name]) for name, share in _FIELDS.items())
        lexical += weight * best / total
        coverage += weight * min(1.0, 2.0 * best) / total
    own = texts["name"]
    asked = sum(any(word.measure_likeness(frozenset((root,))) >= 1.0 for word, _ in weights) for root in own)
    precision = asked / len(own) if own else 0.0
    worth = 0.62 * lexical + 0.13 * precision + 0.25 * score
    last = one.name.split(".")[-1]
    names = [name.split(".")[-1].strip("()") for name in question.names]
    if last in names or ("test" in question.about and any(name in last for name in names)):
        worth, coverage = worth + 0.25, max(coverage, GOOD_COVERAGE)
    return RankedEntry(one, worth * _estimate_prior(one, question), coverage)


def _estimate_prior(one: SurveyEntry, question: SurveyQuestion) -> float:
    """Return how likely a place of this sort answers, whatever it says."""
    audience = determine_audience(one.path, one.name)
    worth = _ASKED_FOR if audience in question.about else _AUDIENCES[audience]
    worth *= _KINDS[one.kind]
    return worth * 0.9 if one.kind in ("function", "class") and one.last == one.first else worth
