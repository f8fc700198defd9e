"""The hashing embedder: the same vectors everywhere, whatever is embedded alongside a text."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.memory.hashing_embedder import HashingEmbedder

WORDS = st.sampled_from(
    [
        "max_retries",
        "maxRetries",
        "HTTPServer",
        "the",
        "İstanbul",
        "straße",
        "λόγος",
        "Ёлка",
        "ﬁn",
        "重试处理",
        "__init__",
        "utf8",
        "e\u0301t",
        "\ud800",
        "!!",
        "",
        "\u200b",
        "ไทยแลนด์",
    ]
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=8).map(" ".join))

GOLDEN = [
    "Where is retry handled?",
    "def max_retries(self, HTTPServer): return self.maxRetries  # 3 of 5",
    "Де обробляються повторні спроби? Ёлка, straße, İstanbul, λόγος",
    "请在代码里找到重试处理 カタカナ",
    "",
]
DIGEST = "60268c4924b02013eec9d4428791680e2a90733ef0f1d92ab90160a43cea05ee"

ELSEWHERE = """
import hashlib, sys
from sessiontree.memory.hashing_embedder import HashingEmbedder
texts = sys.stdin.buffer.read().decode().split("\\0")
print(hashlib.sha256(HashingEmbedder().embed(texts).astype("<f4").tobytes()).hexdigest())
"""


@pytest.fixture
def embedder() -> HashingEmbedder:
    """The embedder."""
    return HashingEmbedder()


def likeness(embedder: HashingEmbedder, one: str, other: str) -> float:
    """Return the cosine of two texts."""
    vectors = embedder.embed([one, other])
    return float(vectors[0] @ vectors[1])


def test_vectors_are_those_of_every_release(embedder: HashingEmbedder) -> None:
    """The golden vectors: whoever changes them gives the embedder a new identity."""
    vectors = embedder.embed(GOLDEN)
    assert hashlib.sha256(vectors.astype("<f4").tobytes()).hexdigest() == DIGEST
    assert embedder.identity == "hashing-384-v1"


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "4711"])
def test_another_process_gets_the_same_vectors(embedder: HashingEmbedder, seed: str) -> None:
    """Nothing depends on the process, nor on Python's own hashing."""
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input="\0".join(GOLDEN).encode(),
        capture_output=True,
        check=True,
        env={"PYTHONHASHSEED": seed},
    )
    assert done.stdout.decode().strip() == DIGEST


@given(st.lists(TEXTS, max_size=8), st.randoms(use_true_random=False))
def test_text_has_the_same_vector_in_any_company(texts: list[str], chance: random.Random) -> None:
    """Alone, in a batch, in a batch of another order: equal to the last bit, of unit length or zero."""
    embedder = HashingEmbedder()
    vectors = embedder.embed(texts)
    assert vectors.shape == (len(texts), embedder.dimensions)
    assert vectors.dtype == np.float32
    for text, vector in zip(texts, vectors, strict=True):
        assert np.array_equal(embedder.embed([text])[0], vector)
        has_word = any(character.isalnum() for character in text)
        assert not has_word or abs(float(np.linalg.norm(vector.astype(float))) - 1) < 1e-6
        assert np.isfinite(vector).all()
    order = list(range(len(texts)))
    chance.shuffle(order)
    assert np.array_equal(embedder.embed([texts[index] for index in order]), vectors[order])


def test_batch_larger_than_a_block_is_no_different(embedder: HashingEmbedder) -> None:
    """What is given at once is cut into blocks; a text is never cut."""
    long = [f"word{number} " * 20_000 for number in range(4)]
    vectors = embedder.embed([*long, "a short one"])
    for text, vector in zip([*long, "a short one"], vectors, strict=True):
        assert np.array_equal(embedder.embed([text])[0], vector)


@pytest.mark.parametrize("text", ["", " ", "\n\t", "!?… — ()", "___", "🙂"])
def test_text_without_words_is_all_zero(embedder: HashingEmbedder, text: str) -> None:
    """No feature, no direction: it is like nothing."""
    assert not embedder.embed([text]).any()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("maxRetries", "max_retries"),
        ("maxRetries", "MaxRetries"),
        ("__init__", "init"),
        ("Straße", "STRASSE"),
        ("ﬁnd", "find"),
        ("ΛΌΓΟΣ", "λόγος"),
        ("ｗｉｄｅ", "wide"),
        ("e\u0301t\u00e9", "\u00e9te\u0301"),
    ],
)
def test_spellings_of_one_word_are_equal(embedder: HashingEmbedder, one: str, other: str) -> None:
    """Case, compatibility forms and the way an identifier is put together make no difference."""
    assert likeness(embedder, one, other) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("query", "near", "far"),
    [
        ("retries", "maxRetries", "minLength"),
        ("retry handling", "where retries are handled", "where images are resized"),
        ("configuraton", "configuration", "confinement"),
        ("server", "HTTPServer", "HTTPClient"),
        ("запит", "запиту користувача", "відповідь моделі"),
        ("重试", "请在代码里找到重试处理", "请在代码里找到图片处理"),
        ("ไทย", "ประเทศไทย", "ประเทศจีน"),
    ],
)
def test_what_is_spelled_alike_is_near(embedder: HashingEmbedder, query: str, near: str, far: str) -> None:
    """Other forms, typos, parts of identifiers, and words of scripts without spaces are found."""
    assert likeness(embedder, query, near) > likeness(embedder, query, far) + 0.1
