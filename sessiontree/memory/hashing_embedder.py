"""The default embedder, which needs nothing: hashes words and parts of words, with signs, into 384 numbers.

It is lexical: it finds other forms, typos and the parts of identifiers, and knows nothing about meaning.
Source: feature hashing with signs (Weinberger et al. 2009); square roots of the rows (Hellinger).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sessiontree.contracts.values.quick_dataclass import dataclass

Floats: TypeAlias = NDArray[np.float32]
_Hashes: TypeAlias = NDArray[np.uint64]
_Flags: TypeAlias = NDArray[np.bool_]
_Places: TypeAlias = NDArray[np.intp]

DIMENSIONS: Final = 384
_BLOCK_CHARS = 1 << 18
"""How many characters are hashed at a time; it bounds the memory used."""

_WORD, _SHORT_WORD, _PIECE, _CHARACTER, _PAIR = 6, 2, 1, 2, 4
"""The weight of one occurrence: a word, a word of up to three letters, three letters in a row; and in a
script without spaces, a character and two in a row."""
_SHORT = 3
_ODD, _INVERSE = np.uint64(0x9E3779B97F4A7C15), np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_WORD_SALT, _PIECE_SALT, _CHARACTER_SALT, _PAIR_SALT = (
    np.uint64(salt)
    for salt in (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89)
)
_UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF),
             (0xF900, 0xFAFF), (0x20000, 0x3FFFF))  # fmt: skip
"""Scripts without spaces: Thai, Lao, Burmese, Khmer, Kana, Han."""
_FINAL_SIGMA = 0x03C2
"""Case folding changes it, although it is not a capital."""


class HashingEmbedder:
    """Turns texts into vectors by hashing. The vectors are the same on every machine, to the last bit.

    The features of a text are its words, the parts of identifiers (``maxRetries`` and ``max_retries``: max,
    retries, and both as one), and every three characters in a row. Case and compatibility forms make no
    difference. A text without a letter or digit has no features: its vector is all zero.
    """

    identity: Final = f"hashing-{DIMENSIONS}-v1"
    dimensions: Final = DIMENSIONS
    noise: Final = 0.22
    """Similarity that unrelated texts may have: they share some three letters in a row."""

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one unit vector for each text, (len, 384) float32; all zero for a text without words."""
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        for first, block in _split_blocks(texts):
            vectors[first : first + len(block)] = _embed(block)
        return vectors


@dataclass(frozen=True, slots=True)
class _Characters:
    """The characters of some texts, concatenated, without underscores; a blank at either end."""

    codes: _Hashes
    """Case-folded code points."""
    rows: _Places
    """The index of each character's text."""
    is_word: _Flags
    begins_word: _Flags
    begins_part: _Flags
    """Also true where a word begins."""


def _split_blocks(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks of a bounded number of characters, as (index of the first text, texts)."""
    first, block, chars = 0, list[str](), 0
    for index, text in enumerate(texts):
        if block and chars + len(text) > _BLOCK_CHARS:
            yield first, block
            first, block, chars = index, [], 0
        block.append(text)
        chars += len(text)
    if block:
        yield first, block


def _embed(texts: Sequence[str]) -> Floats:
    characters = _to_characters(texts)
    sums = np.zeros(len(texts) * DIMENSIONS)
    for places, hashes, weights in (
        *_hash_words(characters),
        _split_trigrams(characters),
        *_hash_unspaced(characters),
    ):
        mixed = _mix(hashes)
        buckets = (mixed >> np.uint64(32)) * np.uint64(DIMENSIONS) >> np.uint64(32)
        signed = np.where(mixed & np.uint64(1), weights, -weights)
        keys = characters.rows[places] * DIMENSIONS + buckets.astype(np.intp)
        sums += np.bincount(keys, signed, len(sums))
    table = sums.reshape(len(texts), DIMENSIONS)
    # the sums are whole numbers; one division and one root each follow, so rounding depends on no order
    sizes = np.abs(table)
    totals = sizes.sum(axis=1, keepdims=True)
    roots = np.sqrt(np.divide(sizes, totals, out=np.zeros_like(sizes), where=totals > 0))
    vectors: Floats = np.copysign(roots, table).astype(np.float32)
    return vectors


def _to_characters(texts: Sequence[str]) -> _Characters:
    spelled = [_normalize(text) for text in texts]
    written = _to_codes("\n" + "\n".join(spelled) + "\n")
    folded = _to_codes("\n" + "\n".join(map(str.casefold, spelled)) + "\n")
    rows = np.repeat(np.arange(len(spelled)), [len(text) + 1 for text in spelled])
    rows = np.concatenate((rows[:1], rows))
    is_joint = written == ord("_")
    after_joint = np.concatenate(([False], is_joint[:-1]))
    kept = ~is_joint
    written, folded, rows, after_joint = written[kept], folded[kept], rows[kept], after_joint[kept]
    is_word = _flag_words(folded)
    is_capital = is_word & (written != folded) & (written != _FINAL_SIGMA)
    is_small = is_word & ~is_capital & ~((folded >= ord("0")) & (folded <= ord("9")))
    before, behind = _shift(is_capital, 1), _shift(is_small, -1)
    begins_word = is_word & ~_shift(is_word, 1)
    begins_part = begins_word | (is_word & after_joint) | (is_capital & (~before | behind))
    return _Characters(folded.astype(np.uint64), rows, is_word, begins_word, begins_part)


def _normalize(text: str) -> str:
    """Return a text in compatibility form, without characters that case folding makes longer."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    if len(text.casefold()) == len(text):
        return text
    return "".join(one if len(folded := one.casefold()) == 1 else folded for one in text)


def _to_codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _flag_words(codes: NDArray[np.uint32]) -> _Flags:
    """Return which characters belong to words: letters, digits, and their marks."""
    flags = _ASCII_WORD[np.minimum(codes, 128)]
    foreign = np.flatnonzero(codes >= 128)
    if len(foreign):
        # Each letter is judged once, because that is slow in Python.
        distinct, which = np.unique(codes[foreign], return_inverse=True)
        flags[foreign] = np.array([_is_word(chr(code)) for code in distinct])[which]
    return flags


def _is_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("M")


_ASCII_WORD = np.array([chr(code).isalnum() for code in range(128)] + [False])


def _hash_words(characters: _Characters) -> Iterator[tuple[_Places, _Hashes, NDArray[np.int64]]]:
    """Yield every word, and every part of words with several parts: place, hash and weight."""
    codes, is_word = characters.codes, characters.is_word
    # With sums of codes times powers, the hash of a word of any length is one subtraction.
    powers = np.cumprod(np.concatenate(([np.uint64(1)], np.full(len(codes), _ODD))))
    inverses = np.cumprod(np.concatenate(([np.uint64(1)], np.full(len(codes), _INVERSE))))
    sums = np.concatenate(([np.uint64(0)], np.cumsum(codes * powers[:-1])))
    ends = np.flatnonzero(is_word & ~_shift(is_word, -1)) + 1
    words = np.flatnonzero(characters.begins_word)
    parts = np.flatnonzero(characters.begins_part)
    part_ends = np.concatenate((parts[1:], [len(codes)]))
    word_of = np.searchsorted(words, parts, "right") - 1
    part_ends = np.minimum(part_ends, ends[word_of])
    is_several = (parts != words[word_of]) | (part_ends != ends[word_of])
    for first, last in ((words, ends), (parts[is_several], part_ends[is_several])):
        hashes = (sums[last] - sums[first]) * inverses[first] + _WORD_SALT
        yield first, hashes, np.where(last - first <= _SHORT, _SHORT_WORD, _WORD)


def _split_trigrams(characters: _Characters) -> tuple[_Places, _Hashes, NDArray[np.int64]]:
    """Return every three characters in a row with the middle one in a word; others count as blanks."""
    codes = np.where(characters.is_word, characters.codes, np.uint64(0))
    places = np.flatnonzero(characters.is_word)
    hashes = (codes[places - 1] * _ODD + codes[places]) * _ODD + codes[places + 1] + _PIECE_SALT
    return places, hashes, np.full(len(places), _PIECE)


def _hash_unspaced(characters: _Characters) -> Iterator[tuple[_Places, _Hashes, NDArray[np.int64]]]:
    """Yield the characters of scripts without spaces, and every two of them in a row."""
    codes = characters.codes
    found = np.zeros(len(codes), np.bool_)
    if codes.max(initial=0) >= _UNSPACED[0][0]:
        for first, last in _UNSPACED:
            found |= (codes >= first) & (codes <= last)
    found &= characters.is_word
    ones, twos = np.flatnonzero(found), np.flatnonzero(found & _shift(found, -1))
    yield ones, codes[ones] + _CHARACTER_SALT, np.full(len(ones), _CHARACTER)
    yield twos, codes[twos] * _ODD + codes[twos + 1] + _PAIR_SALT, np.full(len(twos), _PAIR)


def _shift(flags: _Flags, by: Literal[1, -1]) -> _Flags:
    """Return the flag before (1) or after (-1) each place; False beyond the ends."""
    return np.concatenate(([False], flags[:-1])) if by == 1 else np.concatenate((flags[1:], [False]))


def _mix(hashes: _Hashes) -> _Hashes:
    """Mix the bits of each hash (finaliser of SplitMix64, Steele et al. 2014)."""
    mixed = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
