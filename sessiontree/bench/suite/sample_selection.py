"""The selection of samples by a command: by id, by range or by tag."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from sessiontree import ConfigError
from sessiontree.bench.suite.suite import Sample

TAGS: Final = "tags"
"""The member of a sample's metadata that holds its tags: a text, or a list of texts."""
_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)")
_TAG: Final = "tag:"
_NEAR: Final = 3


def select_samples(samples: Sequence[Sample], wanted: Iterable[str]) -> list[Sample]:
    """Return the samples that a selection names, in the suite's order.

    Args:
        samples: All samples of the suite.
        wanted: Each is an id, a pattern such as ``add-*``, a range of places in the suite such as ``1..50``,
            a tag such as ``tag:hard``, or several of them with commas between.

    Raises:
        ConfigError: one of them names no sample; says which, and what is near.
    """
    ids = {sample.id: sample for sample in samples}
    chosen: set[str] = set()
    for word in _split_words(wanted, ids):
        found = list(_find_ids(word, samples, ids))
        if not found:
            near = get_close_matches(word, ids, n=_NEAR)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise ConfigError(
                f"samples {word!r}: no sample of the suite; give an id, a pattern such as 'add-*', a range "
                f"such as 1..{len(samples)}, or tag:NAME{hint}"
            )
        chosen.update(found)
    return [sample for sample in samples if sample.id in chosen]


def _split_words(wanted: Iterable[str], ids: Iterable[str]) -> Iterator[str]:
    known = set(ids)
    for given in wanted:
        if given in known:  # an id may have a comma
            yield given
        else:
            yield from (word.strip() for word in given.split(",") if word.strip())


def _find_ids(word: str, samples: Sequence[Sample], ids: Iterable[str]) -> Iterable[str]:
    if word in set(ids):
        return [word]
    if bounds := _RANGE.fullmatch(word):
        first, last = map(int, bounds.groups())
        return [sample.id for sample in samples[max(first - 1, 0) : last]]
    if word.startswith(_TAG):
        tag = word.removeprefix(_TAG)
        return [sample.id for sample in samples if tag in collect_tags(sample)]
    return [sample.id for sample in samples if fnmatchcase(sample.id, word)]


def collect_tags(sample: Sample) -> frozenset[str]:
    """Return the tags of a sample."""
    given = sample.metadata.get(TAGS, ())
    return frozenset([given] if isinstance(given, str) else map(str, given))
