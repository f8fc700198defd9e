"""Keys by name: what a name is, where it leads, and what of a key is pickled."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from sessiontree import ConfigError, ProviderModel
from sessiontree.models.api_key import ApiKey, collect_packed_keys
from sessiontree.models.named_key import check_key_name, read_named_key

SECRET = "sk-sEnTiNeL-0"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a key that only its owner reads."""
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("given", [SECRET, f"env:{SECRET}", "env:", "file:key", "file:", "", None, 3])
def test_what_is_no_name_is_refused_and_never_shown(given: object) -> None:
    """It may be a key."""
    with pytest.raises(ConfigError, match="name the key's place") as raised:
        check_key_name(given, "key")
    assert SECRET not in str(raised.value)


def test_names_lead_to_the_keys_of_this_machine(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable and a file; what is missing is named."""
    monkeypatch.setenv("A_KEY", f" {SECRET} ")
    assert read_named_key("env:A_KEY") == read_named_key(f"file:{file}") == SECRET
    monkeypatch.delenv("A_KEY")
    with pytest.raises(ConfigError, match="the variable A_KEY is not set"):
        read_named_key("env:A_KEY")
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        read_named_key(f"file:{file}.none")
    file.chmod(0o604)
    with pytest.raises(ConfigError, match="is open to other users; run: chmod go-rwx"):
        read_named_key(f"file:{file}")
    file.chmod(0o600)
    file.write_text("\n")
    with pytest.raises(ConfigError, match="holds no key"):
        read_named_key(f"file:{file}")


def test_pickled_model_has_the_name_of_its_key_and_not_the_key(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever packs models learns where their keys are; a key that was given as text has no place."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    models = [
        ProviderModel("openai:a", key=f"file:{file}"),
        ProviderModel("openai:a"),
        ProviderModel("openai:a", api_key=SECRET),
    ]
    with collect_packed_keys() as keys:
        data = pickle.dumps(models)
    assert [each.name for each in keys] == [f"file:{file}", "env:OPENAI_API_KEY", ""]
    assert SECRET.encode() not in data


def test_key_is_given_once(file: Path) -> None:
    """As text or by its place."""
    with pytest.raises(ConfigError, match="give one of them"):
        ProviderModel("openai:a", key=f"file:{file}", api_key=SECRET)
    with pytest.raises(ConfigError, match="key: the variable NO_SUCH_KEY is not set"):
        ApiKey.named("env:NO_SUCH_KEY", "key")
