"""Settings: a name nobody reads is refused with the nearest one, and no secret is shown."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from sessiontree import (
    AgentConfig,
    AgentSpec,
    Budget,
    ConfigError,
    HashingSettings,
    HTTPSettings,
    ImageLimits,
    Limits,
    MemorySettings,
    MiniLMSettings,
    PluginSettings,
    PolicyConfig,
    Rule,
    ToolPolicy,
    WebSettings,
)
from sessiontree.contracts.settings.settings import StrictSettings, find_nearest_name, suggest_names
from sessiontree.policy.settings import parse_policy

TYPOS: list[tuple[type[StrictSettings], str, str]] = [
    (Limits, "max_childern", "'max_children'"),
    (Limits, "MAX_CHILDREN", "'max_children'"),
    (Budget, "token", "'tokens'"),
    (AgentConfig, "modle", "'model'"),
    (AgentSpec, "tool", "'tools'"),
    (AgentSpec, "promt", "'prompt'"),
    (AgentConfig, "temperature", "AgentConfig(settings=ModelSettings(temperature=…))"),
    (PolicyConfig, "tool", "'tools'"),
    (ToolPolicy, "alow", "'allow'"),
    (ToolPolicy, "alsoAlow", "'alsoAllow'"),
    (Rule, "awnser", "'answer'"),
    (WebSettings, "port", "'ports'"),
    (MemorySettings, "embeder", "'embedder'"),
    (HTTPSettings, "timeout", "'timeout_s'"),
    (MiniLMSettings, "model_directory", "'model_dir'"),
    (HashingSettings, "kin", "'kind'"),
    (ImageLimits, "width", "'max_width'"),
    (PluginSettings, "enable", "'enabled'"),
]


@pytest.mark.parametrize(
    ("settings", "typo", "meant"), TYPOS, ids=[f"{each[0].__name__}-{each[1]}" for each in TYPOS]
)
def test_misspelt_setting_names_the_nearest(settings: type[StrictSettings], typo: str, meant: str) -> None:
    """Every public configuration says what was probably meant, and leads to no page of pydantic's."""
    with pytest.raises(ConfigError) as caught:
        settings(**{typo: 1})
    said = str(caught.value)
    assert typo in said and meant in said and settings.__name__ in said
    assert "pydantic" not in said


NESTED: list[tuple[Callable[..., object], Mapping[str, Any], str]] = [
    (
        AgentSpec,
        {"config": {"promt": "x"}},
        "config.promt: no setting is called that; did you mean 'prompt'?",
    ),
    (PolicyConfig, {"tools": {"denny": ()}}, "tools.denny: no setting is called that; did you mean 'deny'?"),
    (
        MemorySettings,
        {"embedder": {"kind": "hashing", "dims": 3}},
        "embedder.hashing.dims: no setting is called that; choose one of: kind",
    ),
]


@pytest.mark.parametrize(("settings", "given", "words"), NESTED, ids=["agent", "policy", "memory"])
def test_inner_setting_is_named_by_its_place(
    settings: Callable[..., object], given: Mapping[str, Any], words: str
) -> None:
    """Where settings stand in settings, the error says where."""
    with pytest.raises(ConfigError) as caught:
        settings(**given)
    assert words in str(caught.value)


def test_wrong_values_are_named_and_shown() -> None:
    """Each with what was given; all at once."""
    with pytest.raises(ConfigError, match=r"max_depth: .* \(given: 0\); max_live: .* \(given: 'x'\)"):
        Limits(max_depth=0, max_live="x")  # type: ignore[arg-type]


def test_no_secret_is_shown() -> None:
    """Settings that may hold keys say what is wrong, and not with which value."""
    mistakes: list[Callable[[], object]] = [
        lambda: HTTPSettings(url="http://name:hush@host", model="m", dimensions=1),
        lambda: MemorySettings(storage_options={"key": ["hush"]}),  # type: ignore[dict-item]
        lambda: PluginSettings(config="hush"),  # type: ignore[arg-type]
        lambda: MemorySettings(storage_optons={"key": "hush"}),  # type: ignore[call-arg]
    ]
    for make in mistakes:
        with pytest.raises(ConfigError) as caught:
            make()
        assert "hush" not in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_file_with_a_typo_says_the_same() -> None:
    """Who reads settings from a file gets the place and the nearest name, too."""
    with pytest.raises(ConfigError, match=r"tools\.alow: no setting is called that; did you mean 'allow'\?"):
        parse_policy('{"tools": {"alow": []}}', form="json", place="'p.json'")
    with pytest.raises(ValidationError, match="did you mean 'max_children'") as caught:
        Limits.model_validate({"max_childern": 3})
    assert "errors.pydantic.dev" not in str(caught.value)


def test_settings_travel_and_are_kept() -> None:
    """They are pickled, dumped and read again as before."""
    given = PolicyConfig(tools=ToolPolicy(allow=("read",), also_allow=("exec",)))
    assert pickle.loads(pickle.dumps(given)) == given
    assert PolicyConfig.model_validate(given.model_dump(by_alias=True)) == given
    assert PolicyConfig.model_validate_json(given.model_dump_json()) == given


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("Worker ", ("branch", "worker"), "worker"),
        ("raed", ("read", "write"), "read"),
        ("ReAd", ("read",), "read"),
        ("", ("read",), None),
        ("zzz", ("read",), None),
        ("read", (), None),
    ],
)
def test_nearest_name(name: str, known: tuple[str, ...], near: str | None) -> None:
    """Alike in any case and with space around it; nothing is made up."""
    assert find_nearest_name(name, known) == near


def test_where_nothing_is_near_the_names_are_listed() -> None:
    """Few of them all, many of them in part."""
    assert suggest_names("zzz", ("b", "a")) == "choose one of: a, b"
    assert suggest_names("zzz", ()) == "none is known"
    assert suggest_names("?", (f"name{number:02}" for number in range(99))).endswith(", name11, …")


SHOW_SIGNATURES = """
import inspect
import sessiontree
from pydantic import BaseModel
found = {
    name: [*inspect.signature(each).parameters]
    for name in sessiontree.__all__
    if isinstance(each := getattr(sessiontree, name), type) and issubclass(each, BaseModel)
}
assert "max_children" in found["Limits"], found
assert "cost_usd" in found["Budget"], found
print(*(name for name, parameters in found.items() if "given" in parameters))
"""


@pytest.mark.slow
def test_settings_show_their_parameters_in_a_fresh_process() -> None:
    """Shift-tab in a new kernel, and ``help``: before the first use of any setting."""
    program = [sys.executable, "-c", SHOW_SIGNATURES]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
