"""Memory's settings, and the embedder they mean."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pydantic
import pytest

from sessiontree.contracts.errors import ConfigError
from sessiontree.memory.embedders import make_embedder
from sessiontree.memory.settings import HashingSettings, HTTPSettings, MemorySettings, MiniLMSettings
from tests.unit.memory.minilm_oracle import write_model

SERVER = {"kind": "http", "url": "http://localhost:1", "model": "m", "dimensions": 3}


def test_settings_travel_and_hide_their_secrets() -> None:
    """They survive pickling; neither their text nor their JSON shows a storage option."""
    settings = MemorySettings.model_validate(
        {"uri": "s3://bucket/memory", "storage_options": {"secret_key": "hush"}, "embedder": SERVER}
    )
    copy = pickle.loads(pickle.dumps(settings))
    assert copy == settings
    assert copy.revealed_options() == {"secret_key": "hush"}
    assert "hush" not in f"{settings!r} {settings} {settings.model_dump_json()}"
    bare = settings.without_values()
    assert b"hush" not in pickle.dumps(bare)
    assert bare.revealed_options() == {"secret_key": ""}
    assert bare.with_options({"secret_key": "hush"}) == settings


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        (None, Path("/state/memory")),
        ("/else/where", Path("/else/where")),
        ("file:///else/wh%20ere", Path("/else/wh ere")),
        ("here", Path("here").absolute()),
        ("~/memory", Path("~/memory").expanduser()),
        ("s3://bucket/memory", None),
    ],
)
def test_local_store_is_known_by_its_directory(uri: str | None, place: Path | None) -> None:
    """A relative path means the same in every process; an address elsewhere has no directory."""
    settings = MemorySettings(uri=uri)
    assert settings.directory_in(Path("/state")) == place
    assert settings.uri_in(Path("/state")) == (str(place) if place else uri)


@pytest.mark.parametrize(
    "given",
    [
        {"uri": ""},
        {"uri": "hush\0"},
        {"uri": "file:///hush%00"},
        {"uri": "s3://hush\0"},
        {"url": "/x"},
        {"ann_above": 0},
        {"embedder": {"kind": "word2vec"}},
        {"embedder": {"kind": "hashing", "dimensions": 3}},
        {"embedder": {"kind": "minilm"}},
        {"embedder": {**SERVER, "url": "ftp://host"}},
        {"embedder": {**SERVER, "url": "http://me:hush@host"}},
        {"embedder": {**SERVER, "timeout_s": float("inf")}},
        {"storage_options": {"secret_key": ["hush"]}},
        {"storage_options": {"secret_key": "hush\n"}},
        {"storage_options": {"secret_key": "hush\0"}},
        {"storage_options": {"region\n": "hush"}},
        {"storage_options": {"": "hush"}},
    ],
)
def test_wrong_settings_are_refused_without_telling_a_secret(given: dict[str, Any]) -> None:
    """Each names its field; none quotes what was given."""
    with pytest.raises(pydantic.ValidationError) as caught:
        MemorySettings.model_validate(given)
    assert "hush" not in str(caught.value)


def test_settings_make_the_embedder_they_describe(tmp_path: Path) -> None:
    """Each kind makes its own."""
    write_model(tmp_path)
    assert make_embedder(HashingSettings()).identity == "hashing-384-v1"
    assert make_embedder(MiniLMSettings(model_dir=tmp_path)).dimensions == 8
    assert make_embedder(HTTPSettings.model_validate(SERVER)).identity == "http-3-m"


def test_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tokenizers or safetensors: one typed error that says what to install."""
    monkeypatch.delitem(sys.modules, "sessiontree.memory.minilm", raising=False)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"tokenizers.*\[minilm\]"):
        make_embedder(MiniLMSettings(model_dir=tmp_path))
    assert make_embedder(HashingSettings()).dimensions == 384


def test_another_missing_module_is_no_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the installation is not hidden behind advice that does not help."""
    monkeypatch.setitem(sys.modules, "sessiontree.memory.minilm", None)
    with pytest.raises(ModuleNotFoundError, match="minilm"):
        make_embedder(MiniLMSettings(model_dir=tmp_path))


def test_settings_load_nothing_heavy() -> None:
    """A program that only configures a memory loads neither numbers, nor a database, nor a client."""
    probe = "import sys, sessiontree.memory.settings, sessiontree.memory.embedders; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True, text=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "pydantic" in loaded
    assert not loaded & {"numpy", "lancedb", "pyarrow", "httpx", "tokenizers", "safetensors", "ray"}
