"""The MiniLM embedder: a small BERT model from a local directory, computed in numpy. It knows meaning.

Only settings that name it load this module, because it needs ``sessiontree[minilm]`` (tokenizers,
safetensors). Source: BERT (Devlin et al. 2018); sentences as the mean of their tokens (Reimers and Gurevych
2019).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from tokenizers import Tokenizer

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.quick_dataclass import dataclass

Floats: TypeAlias = NDArray[np.float32]

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
MAX_TOKENS: Final = 256
"""The limit of one text: the model was trained with no more. Later tokens do not count."""


class MiniLMEmbedder:
    """A sentence model of the BERT family, such as all-MiniLM-L6-v2. Blocks; computes one text at a time.

    Args:
        model_dir: Holds ``config.json``, ``model.safetensors`` and ``tokenizer.json``.

    Raises:
        ConfigError: a file is missing or damaged, or the model belongs to another family.
    """

    noise: Final = 0.2
    """Similarity that unrelated texts may have."""

    def __init__(self, model_dir: Path) -> None:
        files = {name: _read_model_file(model_dir, name) for name in (CONFIG, WEIGHTS, TOKENIZER)}
        try:
            config = json.loads(files[CONFIG])
            _check_family(config, model_dir)
            tensors = load(files[WEIGHTS])
            self._model = _Model.of(config, tensors)
            self._tokenizer = Tokenizer.from_str(files[TOKENIZER].decode())
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(min(MAX_TOKENS, len(self._model.positions)))
            self.dimensions: int = self._model.words.shape[1]
            digest = hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in files.values()))
            self.identity: str = f"minilm-{self.dimensions}-{digest.hexdigest()[:16]}"
            # Files that do not fit together fail here, at the start, and not with the first search.
            self.embed(["a text"])
        except ConfigError:
            raise
        except KeyError as error:
            message = f"the model in {str(model_dir)!r} has no {error}, so it is not a BERT model"
            raise ConfigError(f"{message}; give one that is, such as all-MiniLM-L6-v2") from error
        except Exception as error:
            # the tokenizer raises plain Exception
            message = f"the model in {str(model_dir)!r} can't be used: {type(error).__name__}: {error}"
            raise ConfigError(f"{message}; copy it again") from error

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one unit vector for each text, (len, dimensions) float32."""
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        for index, encoded in enumerate(self._tokenizer.encode_batch(list(texts))):
            pooled = self._model.hidden(np.asarray(encoded.ids)).mean(axis=0)
            vectors[index] = pooled / max(float(np.linalg.norm(pooled)), 1e-12)
        return vectors


@dataclass(frozen=True, slots=True)
class _Dense:
    weight: Floats
    """(out, in)."""
    bias: Floats

    @classmethod
    def of(cls, tensors: Mapping[str, Any], name: str) -> Self:
        return cls(_to_floats(tensors[f"{name}.weight"]), _to_floats(tensors[f"{name}.bias"]))

    def __call__(self, given: Floats) -> Floats:
        return given @ self.weight.T + self.bias


@dataclass(frozen=True, slots=True)
class _Norm:
    scale: Floats
    shift: Floats
    epsilon: float

    @classmethod
    def of(cls, tensors: Mapping[str, Any], name: str, epsilon: float) -> Self:
        return cls(_to_floats(tensors[f"{name}.weight"]), _to_floats(tensors[f"{name}.bias"]), epsilon)

    def __call__(self, given: Floats) -> Floats:
        centred: Floats = given - given.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        spread: Floats = np.sqrt(variance + np.float32(self.epsilon))
        return centred / spread * self.scale + self.shift


@dataclass(frozen=True, slots=True)
class _Layer:
    query: _Dense
    key: _Dense
    value: _Dense
    out: _Dense
    after_attention: _Norm
    wide: _Dense
    narrow: _Dense
    after_wide: _Norm
    heads: int

    @classmethod
    def of(cls, tensors: Mapping[str, Any], number: int, heads: int, epsilon: float) -> Self:
        name = f"encoder.layer.{number}"
        return cls(
            query=_Dense.of(tensors, f"{name}.attention.self.query"),
            key=_Dense.of(tensors, f"{name}.attention.self.key"),
            value=_Dense.of(tensors, f"{name}.attention.self.value"),
            out=_Dense.of(tensors, f"{name}.attention.output.dense"),
            after_attention=_Norm.of(tensors, f"{name}.attention.output.LayerNorm", epsilon),
            wide=_Dense.of(tensors, f"{name}.intermediate.dense"),
            narrow=_Dense.of(tensors, f"{name}.output.dense"),
            after_wide=_Norm.of(tensors, f"{name}.output.LayerNorm", epsilon),
            heads=heads,
        )

    def __call__(self, hidden: Floats) -> Floats:
        attended = self.after_attention(hidden + self.out(self._attend(hidden)))
        return self.after_wide(attended + self.narrow(_apply_gelu(self.wide(attended))))

    def _attend(self, hidden: Floats) -> Floats:
        query, key, value = (
            dense(hidden).reshape(len(hidden), self.heads, -1).swapaxes(0, 1)
            for dense in (self.query, self.key, self.value)
        )
        scores = query @ key.swapaxes(1, 2) / np.float32(math.sqrt(query.shape[-1]))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed: Floats = (weights @ value).swapaxes(0, 1).reshape(hidden.shape)
        return mixed


@dataclass(frozen=True, slots=True)
class _Model:
    words: Floats
    """(vocabulary, dimensions)."""
    positions: Floats
    """(maximum number of tokens, dimensions)."""
    sentence: Floats
    """(dimensions,): added to every token of the first sentence."""
    norm: _Norm
    layers: tuple[_Layer, ...]

    @classmethod
    def of(cls, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Self:
        epsilon = float(config.get("layer_norm_eps", 1e-12))
        count, heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        return cls(
            words=_to_floats(tensors["embeddings.word_embeddings.weight"]),
            positions=_to_floats(tensors["embeddings.position_embeddings.weight"]),
            sentence=_to_floats(tensors["embeddings.token_type_embeddings.weight"])[0],
            norm=_Norm.of(tensors, "embeddings.LayerNorm", epsilon),
            layers=tuple(_Layer.of(tensors, number, heads, epsilon) for number in range(count)),
        )

    def hidden(self, tokens: NDArray[np.integer[Any]]) -> Floats:
        """Return the output of the last layer for each token, (tokens, dimensions)."""
        hidden = self.norm(self.words[tokens] + self.positions[: len(tokens)] + self.sentence)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def _check_family(config: Mapping[str, Any], model_dir: Path) -> None:
    family, activation = config.get("model_type"), config.get("hidden_act", "gelu")
    if family != "bert" or activation != "gelu":
        message = f"the model in {str(model_dir)!r} is a {family!r} with {activation!r}"
        raise ConfigError(f"{message}; give a 'bert' with 'gelu', such as all-MiniLM-L6-v2")


def _read_model_file(model_dir: Path, name: str) -> bytes:
    try:
        return (model_dir / name).read_bytes()
    except OSError as error:
        message = f"the model in {str(model_dir)!r} has no readable {name}: {error.strerror}"
        raise ConfigError(
            f"{message}; give the directory of {CONFIG}, {WEIGHTS} and {TOKENIZER} as model_dir"
        ) from error


def _to_floats(tensor: Any) -> Floats:
    return np.ascontiguousarray(tensor, np.float32)


def _apply_gelu(given: Floats) -> Floats:
    """Return x·Φ(x); erf by Abramowitz and Stegun 7.1.26, whose error (1.5e-7) is that of float32."""
    size = np.abs(given) * np.float32(math.sqrt(0.5))
    step = 1 / (1 + np.float32(0.3275911) * size)
    series = step * np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * step
    error = np.copysign(1 - series * np.exp(-size * size), given)
    area: Floats = np.float32(0.5) * (1 + error)
    return given * area
