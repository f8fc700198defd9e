"""Question: what a person asks, as the words that count, their stems, and other words for the same thing."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib import resources

MAX_QUESTION_CHARS = 2_000
_MAX_WORDS = 12

_WORDS = tomllib.loads(resources.files("sessiontree.survey").joinpath("words.toml").read_text("utf-8"))
_EMPTY = frozenset(_WORDS["empty"].split())
_KIN = tuple(frozenset(line.split()) for line in _WORDS["same"].strip().splitlines())
_ABOUT = {kind: frozenset(words.split()) for kind, words in _WORDS["about"].items()}
_ENDINGS = [(ending, 5) for ending in _WORDS["long_endings"].split()]
_ENDINGS += [(ending, 3) for ending in _WORDS["endings"].split()]
"""Each with how many letters it leaves at least."""
_IRREGULAR = dict(pair.split(":") for pair in _WORDS["irregular"].split())
_SPOKEN = dict(pair.split(":") for pair in _WORDS["spoken"].split())
_IS_TRANSLATION = re.compile(
    r"(?:^|/)(?:locales?|i18n|lang|languages|translations|messages)/(?:.*/)?([a-z]{2})\b"
)
_NAME = re.compile(r"`([^`\n]{1,200})`|([A-Za-z_$][\w.$]*\w)")
_WORD = re.compile(r"[^\W_]+")
_COMPOUND = re.compile(r"[^\W\d_]{3,}(?:[-_][^\W\d_]{3,})+")
"""Words that say one thing together, such as ``read-only``, or a name of several words."""
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")


@dataclass(frozen=True, slots=True)
class SurveyQuestion:
    """What is asked."""

    words: tuple[str, ...]
    """Those that count, in small letters, each once, in order."""
    names: tuple[str, ...]
    """Identifiers as they were written, such as ``maxRetries`` or ``Cache.get``."""
    parts: tuple[str, ...]
    """Words of compounds such as ``read-only``, which count as one word but are searched for in parts."""
    about: frozenset[str]
    """Which kinds of files it asks for by name, see ``determine_audience``."""


def parse_question(text: str) -> SurveyQuestion:
    """Return a question's words and names; where it has only empty words, those count."""
    joined = _COMPOUND.sub(lambda found: found[0].replace("-", ""), text) if "-" in text else text
    said = [part for word in _WORD.findall(joined) for part in _split_word(word)]
    counting = [word for word in said if word not in _EMPTY and (len(word) > 1 or not word.isascii())]
    names = [quoted or bare for quoted, bare in _NAME.findall(text) if quoted or _is_name(bare)]
    return SurveyQuestion(
        tuple(dict.fromkeys(counting or said))[:_MAX_WORDS],
        tuple(dict.fromkeys(names))[:_MAX_WORDS],
        tuple(part for found in _COMPOUND.findall(text) if "-" in found for part in found.lower().split("-")),
        frozenset(kind for kind, words in _ABOUT.items() if not words.isdisjoint(said)),
    )


def _split_word(word: str) -> list[str]:
    """Return the words of a word: an acronym stays one, an identifier is taken apart."""
    return [word.lower()] if word.isupper() or word.isdigit() or not _is_name(word) else name_words(word)


def _is_name(word: str) -> bool:
    inner = word.strip("_")
    return bool("_" in inner or "." in inner.strip(".") or "$" in word or re.search(r"[a-z][A-Z]", word))


def build_queries(question: SurveyQuestion) -> list[str]:
    """Return what memory is asked: the question's words together, each name, each word with its kin."""
    together = " ".join((*question.names, *question.words, *question.parts))
    single = [" ".join((word, *sorted(find_synonyms(word)))) for word in question.words]
    return list(dict.fromkeys((together, *question.names, *single)))


def name_words(name: str) -> list[str]:
    """Return the words of a name in small letters: ``getHTTPBody`` holds get, http, body."""
    return [part.lower() for part in _PARTS.findall(name)]


def collect_stems(text: str) -> frozenset[str]:
    """Return the stems of a text's words, of identifiers and compounds whole and in parts."""
    words = {part for word in _WORD.findall(text) for part in (*name_words(word), word.lower())}
    words |= {re.sub("[-_]", "", compound).lower() for compound in _COMPOUND.findall(text)}
    return frozenset(map(stem_word, words))


def stem_word(word: str) -> str:
    """Return what a word has in common with its other forms; short words stay as they are."""
    word = _IRREGULAR.get(word, word)
    word = re.sub(r"is(e|ed|es|er|ers|ing|ation|ations)$", r"iz\1", word)
    for _ in range(3):
        fitting = (one for one, least in _ENDINGS if word.endswith(one) and len(word) - len(one) >= least)
        ending = next(fitting, "")
        if not ending or (ending == "s" and word.endswith("ss")):
            break
        word = word.removesuffix(ending)
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
        word = word[:-1]
    return word


def find_synonyms(word: str) -> frozenset[str]:
    """Return other words for the same thing."""
    root = stem_word(word)
    groups = (group for group in _KIN if any(stem_word(other) == root for other in group))
    return frozenset().union(*groups) - {word}


def find_translated_language(path: str) -> str:
    """Return the English name of the language that a file of translations is in; empty for other files."""
    found = _IS_TRANSLATION.search(path)
    return _SPOKEN.get(found[1], "") if found is not None else ""
