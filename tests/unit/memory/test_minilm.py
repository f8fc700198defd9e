"""The MiniLM embedder, against a slow computation of the same model; and models it can't use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sessiontree.contracts.errors import ConfigError
from sessiontree.memory.minilm import MiniLMEmbedder
from tests.unit.memory.minilm_oracle import DIMENSIONS, POSITIONS, WORDS, slow_vector, write_model

TEXTS = ["the cat sat", "a mat", "", "sat on the mat", "a dog"]


def tokens_of(text: str) -> list[int]:
    """Return the tokens of a text between their two marks, as many as the model has places for."""
    inner = [WORDS.index(word) if word in WORDS else 1 for word in text.split()]
    return [2, *inner[: POSITIONS - 2], 3]


@pytest.mark.parametrize("seed", range(5))
def test_vectors_are_those_of_the_slow_computation(tmp_path: Path, seed: int) -> None:
    """Each text's vector is what the papers' formulas give, one number at a time."""
    tensors = write_model(tmp_path, seed)
    vectors = MiniLMEmbedder(tmp_path).embed(TEXTS)
    assert vectors.shape == (len(TEXTS), DIMENSIONS)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, slow_vector(tensors, tokens_of(text)), atol=2e-6)


def test_what_is_beyond_the_longest_text_does_not_count(tmp_path: Path) -> None:
    """A text is cut where the model has no more places."""
    write_model(tmp_path)
    whole, cut = MiniLMEmbedder(tmp_path).embed(["the cat sat on the mat a cat", "the cat sat on"])
    np.testing.assert_array_equal(whole, cut)


def test_text_has_the_same_vector_in_any_company(tmp_path: Path) -> None:
    """Alone or in a batch: equal to the last bit."""
    write_model(tmp_path)
    embedder = MiniLMEmbedder(tmp_path)
    vectors = embedder.embed(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_array_equal(embedder.embed([text])[0], vector)
    assert embedder.embed([]).shape == (0, DIMENSIONS)


def test_identity_names_the_weights(tmp_path: Path) -> None:
    """A copy is the same model wherever it is; other weights or another tokenizer make another one."""
    write_model(tmp_path / "one", 1)
    write_model(tmp_path / "copy", 1)
    write_model(tmp_path / "other", 2)
    write_model(tmp_path / "words", 1)
    words = tmp_path / "words" / "tokenizer.json"
    words.write_text(words.read_text().replace('"cat"', '"dog"'))
    one, copy, other, changed = (
        MiniLMEmbedder(tmp_path / name).identity for name in ("one", "copy", "other", "words")
    )
    assert one == copy
    assert len({one, other, changed}) == 3
    assert one.startswith(f"minilm-{DIMENSIONS}-")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "cut", "not even that"])
def test_damaged_model_is_refused_by_name(tmp_path: Path, name: str, damage: str) -> None:
    """Whatever file is missing or damaged: one typed error that names the directory."""
    write_model(tmp_path)
    file = tmp_path / name
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:100] if damage == "cut" else b"\x00\xff")
    with pytest.raises(ConfigError, match=str(tmp_path)):
        MiniLMEmbedder(tmp_path)


@pytest.mark.parametrize(
    "config",
    [{"model_type": "roberta"}, {"hidden_act": "relu"}, {"num_hidden_layers": 3}, {"num_attention_heads": 3}],
)
def test_model_of_another_family_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    """What can't be computed this way is not computed wrongly."""
    write_model(tmp_path, **config)
    with pytest.raises(ConfigError, match=str(tmp_path)):
        MiniLMEmbedder(tmp_path)
