"""A tiny random BERT, written as files, and what it says of a text by a slow and separate computation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

DIMENSIONS, WIDE, HEADS, LAYERS, POSITIONS = 8, 12, 2, 2, 6
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "a", "mat"]


def write_model(place: Path, seed: int = 1, **config: Any) -> dict[str, Any]:
    """Write a model of 2 layers and 8 dimensions, with a tokenizer of ten words; return its weights."""
    place.mkdir(exist_ok=True)
    chance = np.random.default_rng(seed)
    tensors = {
        name: (chance.normal(0, 0.5, shape) + (1 if name.endswith("LayerNorm.weight") else 0)).astype("f4")
        for name, shape in _shapes().items()
    }
    save_file(tensors, place / "model.safetensors")
    settings = {"model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12}
    settings |= {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, **config}
    (place / "config.json").write_text(json.dumps(settings))
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=POSITIONS)  # as the files of such models ask for: it must not count
    tokenizer.save(str(place / "tokenizer.json"))
    return tensors


def _shapes() -> dict[str, tuple[int, ...]]:
    square, vector = (DIMENSIONS, DIMENSIONS), (DIMENSIONS,)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), DIMENSIONS),
        "embeddings.position_embeddings.weight": (POSITIONS, DIMENSIONS),
        "embeddings.token_type_embeddings.weight": (2, DIMENSIONS),
        "embeddings.LayerNorm.weight": vector,
        "embeddings.LayerNorm.bias": vector,
    }
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= {f"{layer}.attention.{name}.weight": square, f"{layer}.attention.{name}.bias": vector}
        shapes |= {f"{layer}.intermediate.dense.weight": (WIDE, DIMENSIONS)}
        shapes |= {f"{layer}.intermediate.dense.bias": (WIDE,)}
        shapes |= {f"{layer}.output.dense.weight": (DIMENSIONS, WIDE), f"{layer}.output.dense.bias": vector}
        for name in ("attention.output", "output"):
            shapes |= {f"{layer}.{name}.LayerNorm.weight": vector, f"{layer}.{name}.LayerNorm.bias": vector}
    return shapes


def slow_vector(tensors: dict[str, Any], tokens: list[int]) -> list[float]:
    """Return the unit vector of some tokens, one number at a time, as the papers write it down."""
    weights = {name: tensor.astype(float).tolist() for name, tensor in tensors.items()}
    embedded = [
        [
            weights["embeddings.word_embeddings.weight"][token][column]
            + weights["embeddings.position_embeddings.weight"][place][column]
            + weights["embeddings.token_type_embeddings.weight"][0][column]
            for column in range(DIMENSIONS)
        ]
        for place, token in enumerate(tokens)
    ]
    hidden = [_norm(weights, "embeddings.LayerNorm", row) for row in embedded]
    for number in range(LAYERS):
        hidden = _layer(weights, f"encoder.layer.{number}", hidden)
    mean = [sum(row[column] for row in hidden) / len(hidden) for column in range(DIMENSIONS)]
    size = math.sqrt(sum(value * value for value in mean))
    return [value / size for value in mean]


def _layer(weights: dict[str, Any], name: str, hidden: list[list[float]]) -> list[list[float]]:
    query, key, value = (
        [_dense(weights, f"{name}.attention.self.{part}", row) for row in hidden]
        for part in ("query", "key", "value")
    )
    per_head = DIMENSIONS // HEADS
    result = []
    for place, row in enumerate(hidden):
        mixed: list[float] = []
        for head in range(HEADS):
            columns = range(head * per_head, (head + 1) * per_head)
            scores = [
                math.exp(sum(query[place][c] * other[c] for c in columns) / math.sqrt(per_head))
                for other in key
            ]
            mixed += [
                sum(score * other[c] for score, other in zip(scores, value, strict=True)) / sum(scores)
                for c in columns
            ]
        out = _dense(weights, f"{name}.attention.output.dense", mixed)
        attended = _norm(weights, f"{name}.attention.output.LayerNorm", _sum(row, out))
        wide = _dense(weights, f"{name}.intermediate.dense", attended, _gelu)
        narrow = _dense(weights, f"{name}.output.dense", wide)
        result.append(_norm(weights, f"{name}.output.LayerNorm", _sum(attended, narrow)))
    return result


def _gelu(value: float) -> float:
    return value * (1 + math.erf(value / math.sqrt(2))) / 2


def _sum(one: list[float], other: list[float]) -> list[float]:
    return [left + right for left, right in zip(one, other, strict=True)]


def _dense(
    weights: dict[str, Any], name: str, row: list[float], then: Callable[[float], float] = float
) -> list[float]:
    return [
        then(sum(weight * value for weight, value in zip(column, row, strict=True)) + bias)
        for column, bias in zip(weights[f"{name}.weight"], weights[f"{name}.bias"], strict=True)
    ]


def _norm(weights: dict[str, Any], name: str, row: list[float]) -> list[float]:
    mean = sum(row) / len(row)
    spread = math.sqrt(sum((value - mean) ** 2 for value in row) / len(row) + 1e-12)
    return [
        (value - mean) / spread * scale + shift
        for value, scale, shift in zip(row, weights[f"{name}.weight"], weights[f"{name}.bias"], strict=True)
    ]
