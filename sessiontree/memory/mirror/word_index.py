"""The words of the records in memory, and their ranking by BM25.

It finds and scores as the full-text index of the table does: the same words, the same formula, every record
counted. A query takes a fraction of the time, because LanceDB makes a plan for each.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sessiontree.memory.mirror.columns import NumberColumn, TextColumn, select_best
from sessiontree.memory.tables import Vectors, split_words

_K1: Final = 1.2
_B: Final = 0.75
_PIECES: Final = 100_000
"""How many pieces of texts are kept with their words."""
_LATELY: Final = 8_192
"""So many words of rows that were added lately are not sorted."""


class WordIndex:
    """Knows which rows have a word, and how often. Any thread may call its methods.

    A pair of row and word takes 6 bytes, and a row 4 bytes more.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._terms: dict[str, int] = {}
        """The number of each word."""
        self._pieces: dict[str, tuple[int, ...]] = {}
        """The words of pieces of texts without white space. To split a new one takes 2 ms."""
        self._lengths = NumberColumn(np.int32)
        """How many words each row has."""
        self._starts = np.zeros(1, np.int64)
        """Where the rows of each word begin in the next two arrays, and where the last ones end."""
        self._rows = np.empty(0, np.int32)
        self._counts = np.empty(0, np.uint16)
        self._late = NumberColumn(np.int32), NumberColumn(np.int32), NumberColumn(np.uint16)
        """Words, rows and counts that are not in the arrays yet, in the order of the rows."""

    def __len__(self) -> int:
        """Return the number of rows whose words are known."""
        return len(self._lengths)

    def update(self, texts: TextColumn, rows: int) -> None:
        """Add the rows up to, not including, ``rows`` that are not known yet; one without a text is empty."""
        with self._lock:
            start = len(self)
            if start < rows:
                self._add([b"" if text is None else text for text in texts.part(start, rows)])

    def rank(
        self, text: str, mask: NDArray[np.bool_], alive: NDArray[np.bool_], most: int
    ) -> NDArray[np.intp]:
        """Return up to ``most`` rows that have words of a text, best first; equal ones by position.

        Args:
            text: The words; quotes and operators have no meaning. A repeated word counts more.
            mask: The rows that may be found; all of them must be known.
            alive: The rows that count for how rare a word is.
            most: How many rows at most.
        """
        scores = self.score(text, alive)
        return select_best(scores, np.flatnonzero((scores > 0) & mask), most)

    def score(self, text: str, alive: NDArray[np.bool_]) -> Vectors:
        """Return the score of each row for a text; 0 = it has none of the words."""
        rows = len(alive)
        with self._lock:
            self._sort_late(len(self._rows) // 8)
            lengths, dead = self._lengths.all()[:rows], np.flatnonzero(~alive)
            # The table's index does not count texts without words either.
            living = int(np.count_nonzero(lengths)) - int(np.count_nonzero(lengths[dead]))
            total = int(lengths.sum(dtype=np.int64)) - int(lengths[dead].sum(dtype=np.int64))
            per_word = np.float32(_K1 * _B * living / max(total, 1))
            scores = np.zeros(rows, np.float32)
            for term, times in Counter(self._read_query(text)).items():
                found, counts = self._find(term, rows)
                having = int(np.count_nonzero(alive[found])) if len(dead) else len(found)
                rarity = math.log(1 + (living - having + 0.5) / (having + 0.5))
                often = counts.astype(np.float32)
                size = lengths.take(found) * per_word + np.float32(_K1 * (1 - _B))
                scores[found] += np.float32(times * rarity * (_K1 + 1)) * (often / (often + size))
        return scores

    def _read_query(self, text: str) -> list[int]:
        """Return the words of a query that any text has."""
        pieces = split_pieces(text)
        unknown = [piece for piece in pieces if piece not in self._pieces]
        words = dict(zip(unknown, split_words(unknown), strict=True))
        known = (self._pieces.get(piece) or map(self._terms.get, words.get(piece, ())) for piece in pieces)
        return [term for term in chain.from_iterable(known) if term is not None]

    def _add(self, texts: Sequence[bytes]) -> None:
        split = [split_pieces(text.decode()) for text in texts]
        if len(self._pieces) > _PIECES:
            self._pieces.clear()
        unknown = list({piece for pieces in split for piece in pieces} - self._pieces.keys())
        for piece, words in zip(unknown, split_words(unknown), strict=True):
            self._pieces[piece] = tuple(self._terms.setdefault(word, len(self._terms)) for word in words)
        found = [list(chain.from_iterable(map(self._pieces.__getitem__, pieces))) for pieces in split]
        lengths = np.array([len(terms) for terms in found], np.int64)
        rows = np.repeat(np.arange(len(self), len(self) + len(texts)), lengths)
        terms = np.fromiter(chain.from_iterable(found), np.int64, int(lengths.sum()))
        pairs, counts = np.unique(rows << 32 | terms, return_counts=True)
        counts = np.minimum(counts, np.iinfo(np.uint16).max)
        for column, values in zip(self._late, (pairs & 0xFFFF_FFFF, pairs >> 32, counts), strict=True):
            column.extend(values)
        self._lengths.extend(lengths)
        self._sort_late(len(self._rows))

    def _sort_late(self, most: int) -> None:
        """If more than ``most`` was added lately, move it into the arrays, which stay sorted by word and row.

        It is a share of the whole, so that each row is moved a few times only, however many rows there are.
        """
        terms, rows, counts = (column.all() for column in self._late)
        if len(terms) <= max(_LATELY, most):
            return
        order = np.argsort(terms, kind="stable")
        before = np.zeros(len(self._terms), np.int64)
        before[: len(self._starts) - 1] = np.diff(self._starts)
        added = np.bincount(terms, minlength=len(before))
        starts = np.concatenate(([0], np.cumsum(before + added)))
        # The rows of a word that were added are behind those that it had.
        is_old = np.repeat(np.tile([True, False], len(before)), np.column_stack((before, added)).ravel())
        old_rows, old_counts = self._rows, self._counts
        self._rows, self._counts = np.empty(len(is_old), np.int32), np.empty(len(is_old), np.uint16)
        self._rows[is_old], self._counts[is_old] = old_rows, old_counts
        self._rows[~is_old], self._counts[~is_old] = rows[order], counts[order]
        self._starts = starts
        self._late = NumberColumn(np.int32), NumberColumn(np.int32), NumberColumn(np.uint16)

    def _find(self, term: int, rows: int) -> tuple[NDArray[np.intp], NDArray[np.uint16]]:
        """Return the rows with a word among the first ``rows``, ascending, and how often they have it."""
        start, stop = self._starts[term : term + 2] if term + 1 < len(self._starts) else (0, 0)
        found, counts = self._rows[start:stop], self._counts[start:stop]
        terms, late_rows, late_counts = (column.all() for column in self._late)
        late = np.flatnonzero(terms == term)
        if len(late):
            found = np.concatenate((found, late_rows[late]))
            counts = np.concatenate((counts, late_counts[late]))
        known = np.searchsorted(found, rows)  # the rows behind it were stored after the search had begun
        return found[:known].astype(np.intp), counts[:known]


def split_pieces(text: str) -> list[str]:
    """Return pieces of a text that can be split into words one by one, equal ones as equal as possible."""
    if text.isascii():
        return [piece for word in text.lower().split() if (piece := word.strip(string.punctuation))]
    return text.split()
