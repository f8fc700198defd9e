"""The owner's configuration: what counts, what is refused, and what is said of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    Budget,
    ConfigError,
    Configuration,
    Limits,
    ProviderModel,
    ScriptedModel,
    SessionTree,
    sync,
)

SECRET = "sk-sentinel-8Qz2"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the owner's file and returns its path."""

    def written(text: str, mode: int = 0o600) -> Path:
        folder = tmp_path / "owner"
        folder.mkdir(exist_ok=True)
        file = folder / "sessiontree.toml"
        file.write_text(text)
        file.chmod(mode)
        return file

    return written


FULL = """
model = "cheap"
approvals = "smart"
agent = "reviewer"

[limits]
max_turns = 7

[budget]
cost_usd = 2

[policy.tools]
deny = ["exec"]

[models.cheap]
model = "openai:gpt-5-mini"
base_url = "http://127.0.0.1:9/v1"
key = "env:CHEAP_KEY"
context_tokens = 9000
limits = { at_once = 2 }
timeouts = { first_s = 5 }
price = { input_per_million = 0.5, output_per_million = 2 }

[models.other]
model = "anthropic:any"

[agents.reviewer]
tools = ["read"]
prompt = "You review."
model = "cheap"
"""


def test_file_makes_a_tree(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models, agents, limits, budget, approvals and policy of the file are the tree's, async and sync."""
    monkeypatch.setenv("CHEAP_KEY", SECRET)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    options = Configuration.load(write(FULL), workspace=workspace).tree_options()
    model = options["model"]
    assert isinstance(model, ProviderModel)
    assert (model.name, model.base_url, model.context_tokens) == (
        "openai:gpt-5-mini",
        "http://127.0.0.1:9/v1",
        9000,
    )
    assert (model.limits.at_once, model.timeouts.first_s, model.timeouts.total_s) == (2, 5.0, 900.0)
    assert set(options["models"]) == {"cheap"}  # the other one needs a key that nobody needs
    assert SECRET not in repr(options)
    for made in (SessionTree, sync.SessionTree):
        made(workspace, **options, backend="local", state_dir=tmp_path / "state")
    config = SessionTree(workspace, **options, backend="local", state_dir=tmp_path / "state")._config
    assert (config.mode, config.limits.max_turns, config.agents[0].name) == ("smart", 7, "reviewer")
    assert config.budget == Budget(cost_usd=2)
    assert config.agents[0].tools == ("read",)


def test_option_counts_before_variable_before_file_before_default(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each layer replaces single members of the one below."""
    file = write("approvals = 'smart'\n[limits]\nmax_turns = 7\nmax_depth = 2\n[budget]\ntokens = 10\n")
    monkeypatch.setenv("SESSIONTREE_LIMITS__MAX_TURNS", "9")
    monkeypatch.setenv("SESSIONTREE_APPROVALS", "never")
    configured = Configuration.load(file)
    assert configured.approvals == "never"
    options = configured.tree_options(
        approvals="auto", budget=Budget(cost_usd=1), limits=Limits(max_turns=3, branch_ttl_s=None)
    )
    assert options["approvals"] == "auto"
    assert options["limits"] == Limits(max_turns=9, max_depth=2, branch_ttl_s=None)
    assert options["budget"] == Budget(tokens=10, cost_usd=1)
    assert Configuration.load(write("")).limits == Limits(max_turns=9)


def test_several_models_are_asked_in_turn(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list makes a list; an empty variable sets nothing, and a byte order mark does no harm."""
    monkeypatch.setenv("SESSIONTREE_MODEL", "")
    file = write("\ufeffmodel = ['local:smollm2', 'openai:gpt-5']")
    assert Configuration.load(file).tree_options()["model"] == ["local:smollm2", "openai:gpt-5"]
    monkeypatch.setenv("SESSIONTREE_MODEL", "openai:gpt-5")
    assert Configuration.load(file).tree_options()["model"] == "openai:gpt-5"


def test_variable_names_the_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """SESSIONTREE_CONFIG names it, a given path counts before; the default file need not exist."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(write("").parent / "empty"))
    assert Configuration.load().file is None
    monkeypatch.setenv("SESSIONTREE_CONFIG", str(write("model = 'local:smollm2'")))
    assert Configuration.load().model == ("local:smollm2",)
    with pytest.raises(ConfigError, match=r"'/nowhere/a\.toml' does not exist"):
        Configuration.load("/nowhere/a.toml")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("modle = 'x'", "modle: no setting is called that; did you mean 'model'?"),
        ("[limits]\nmax_turn = 3", "limits.max_turn: no setting is called that; did you mean 'max_turns'?"),
        ("[limits]\nmax_turns = 'many'", "limits.max_turns: Input should be a valid integer"),
        ("[models.a]\nbase_ur = ''", "models.a.base_ur: no setting is called that; did you mean 'base_url'?"),
        ("[models.a]\nurl = ''", "models.a.model: Field required"),
        ("[agents.a]\ntool = []", "agents.a.tool: no setting is called that; did you mean 'tools'?"),
        ("approvals = 'perhaps'", "approvals: Input should be 'auto', 'smart', 'always' or 'never'"),
        ("[policy]\nsystem_teir = 'ask'", "policy.system_teir: no setting is called that; did you mean"),
        ("[workspaces.'a/b']\ntrusted = true", "workspaces: 'a/b': give an absolute path"),
        ("model = ", "is not TOML: Invalid value"),
    ],
)
def test_slip_names_file_and_member(write: Write, text: str, error: str) -> None:
    """A typing error is answered with the nearest name, a wrong value with its member."""
    file = write(text)
    with pytest.raises(ConfigError) as raised:
        Configuration.load(file)
    assert str(raised.value).startswith(f"configuration {str(file)!r}")
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("SESSIONTREE_MODEL", "x" * 201, "variable SESSIONTREE_MODEL__0: String should have at most 200"),
        (
            "SESSIONTREE_MODLE",
            "x",
            "SESSIONTREE_MODLE: no setting is called that; did you mean SESSIONTREE_MODEL",
        ),
        ("SESSIONTREE_LIMITS__MAX_TURN", "3", "SESSIONTREE_LIMITS__MAX_TURN: no setting is called that; did"),
        ("SESSIONTREE_LIMITS__MAX_TURNS", "x", "variable SESSIONTREE_LIMITS__MAX_TURNS: Input should be"),
        ("SESSIONTREE_LIMITS", "{", "SESSIONTREE_"),
    ],
)
def test_slip_in_a_variable_is_named(
    write: Write, monkeypatch: pytest.MonkeyPatch, name: str, value: str, error: str
) -> None:
    """A variable is checked like a member."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        Configuration.load(write(""))
    assert error in str(raised.value)


@pytest.mark.parametrize("member", ["api_key", "key", "Token", "secret"])
def test_key_in_the_file_is_refused_and_never_shown(write: Write, member: str) -> None:
    """The file names where a key is; a key that was written there is in no message."""
    text = f"[models.a]\nmodel = 'openai:gpt-5'\n{member} = '{SECRET}'"
    with pytest.raises(ConfigError) as raised:
        Configuration.load(write(text))
    assert "models.a" in str(raised.value)
    assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r}"


def test_key_comes_from_a_file_that_only_its_owner_reads(write: Write, tmp_path: Path) -> None:
    """A key's file with mode 0600 is used; no other one, and none in the workspace."""
    key = tmp_path / "key"
    key.write_text(f"{SECRET}\n")
    key.chmod(0o600)
    text = f"model = 'a'\n[models.a]\nmodel = 'openai:gpt-5'\nkey_file = '{key}'"
    model = Configuration.load(write(text)).tree_options()["model"]
    assert model.key.hide_in(SECRET) == "…"
    key.chmod(0o640)
    with pytest.raises(
        ConfigError, match=r"models\.a: key_file .* is open to other users; run: chmod go-rwx"
    ):
        Configuration.load(write(text)).tree_options()
    with pytest.raises(ConfigError, match=r"key_file .* is in the workspace"):
        Configuration.load(
            write(text.replace(str(key), str(tmp_path / "ws" / "key"))), workspace=tmp_path / "ws"
        ).tree_options()


def test_key_variable_that_is_not_set_is_named(write: Write) -> None:
    """Which model wants which variable."""
    text = "[models.a]\nmodel = 'openai:gpt-5'\nkey = 'env:NOT_SET_HERE'"
    with pytest.raises(ConfigError, match=r"models\.a: key: the variable NOT_SET_HERE is not set"):
        Configuration.load(write(text)).tree_options(model="a")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_file_that_others_may_write_is_refused(write: Write, mode: int) -> None:
    """Who may write the file decides which server gets the transcripts."""
    with pytest.raises(ConfigError, match="is open to other users; run: chmod go-w"):
        Configuration.load(write("", mode))


def test_file_of_another_user_is_refused(write: Write) -> None:
    """Root's file is used, another user's is not."""
    file = write("")
    if os.geteuid() != 0:
        pytest.skip("needs root: only root can make a file that belongs to another user")
    os.chown(file, 12345, -1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        Configuration.load(file)


def test_folder_that_everybody_may_write_is_refused(write: Write) -> None:
    """In such a folder anybody may replace the file."""
    file = write("")
    file.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="every user may write to its folder"):
        Configuration.load(file)


def test_configuration_in_the_workspace_is_refused(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directly, through a link in either direction, and as a folder that is reached by a link."""
    file = write("")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    Configuration.load(file, workspace=workspace)
    with pytest.raises(ConfigError, match="is in the workspace"):
        Configuration.load(file, workspace=tmp_path)
    (workspace / "link.toml").symlink_to(file)
    with pytest.raises(ConfigError, match="is in the workspace"):
        Configuration.load(workspace / "link.toml", workspace=workspace)
    (workspace / "real.toml").touch(0o600)
    (tmp_path / "owner" / "away.toml").symlink_to(workspace / "real.toml")
    with pytest.raises(ConfigError, match="is in the workspace"):
        Configuration.load(tmp_path / "owner" / "away.toml", workspace=workspace)
    (workspace / "dotfiles" / "sessiontree").mkdir(parents=True)
    (workspace / "dotfiles" / "sessiontree" / "sessiontree.toml").touch(0o600)
    (workspace / ".config").symlink_to(workspace / "dotfiles")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(workspace / ".config"))
    with pytest.raises(ConfigError, match="is in the workspace"):
        Configuration.load(workspace=workspace)
    (workspace / ".config").unlink()
    (workspace / ".config" / "sessiontree").mkdir(parents=True)
    (workspace / ".config" / "sessiontree" / "sessiontree.toml").symlink_to(workspace / "real.toml")
    with pytest.raises(ConfigError, match="is in the workspace"):
        Configuration.load(workspace=workspace)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(workspace.parent))
    with pytest.raises(ConfigError, match="is in the workspace"):  # the workspace is the folder itself
        Configuration.load(workspace=workspace.rename(tmp_path / "sessiontree"))


def test_configuration_in_ones_home_directory_is_read(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual folder beneath the workspace is hidden from sessions: its file, agents and keys count."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    assert Configuration.load(workspace=tmp_path).file is None
    folder = tmp_path / ".config" / "sessiontree"
    (folder / "agents").mkdir(parents=True, mode=0o700)
    (folder / "agents" / "reviewer.md").write_text("---\ndescription: reviews\n---\nYou review.\n")
    (folder / "agents" / "reviewer.md").chmod(0o600)
    (folder / "sessiontree.toml").write_text('approvals = "smart"\n')
    (folder / "sessiontree.toml").chmod(0o600)
    found = Configuration.load(workspace=tmp_path)
    assert found.approvals == "smart"
    assert set(found.agents) == {"reviewer"}
    SessionTree(tmp_path, model=ScriptedModel(["hi"]), backend="local", agents=found.agents)


def test_missing_configuration_is_named_as_missing(tmp_path: Path) -> None:
    """Wherever it would be: the file that is not there is the fault."""
    for file in (tmp_path / "nope.toml", tmp_path.parent / "nope.toml"):
        with pytest.raises(ConfigError, match=r"nope\.toml' does not exist"):
            Configuration.load(file, workspace=tmp_path)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"agent": "reviewr"}, "no agent is named 'reviewr'; did you mean 'reviewer'?"),
        ({"model": "cheep"}, "no model is called 'cheep'; did you mean 'cheap'?"),
    ],
)
def test_unknown_name_is_answered_with_the_nearest(
    write: Write, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], error: str
) -> None:
    """A name that an option gives is looked up in the file."""
    monkeypatch.setenv("CHEAP_KEY", SECRET)
    with pytest.raises(ConfigError) as raised:
        Configuration.load(write(FULL)).tree_options(**options)
    assert error in str(raised.value)


def test_model_that_is_continued_is_the_configured_one(write: Write) -> None:
    """A journal has a model's own name; the server it came from is that of the only entry of this name."""
    configured = Configuration.load(write(FULL))
    assert configured.model_called("openai:gpt-5-mini") == "cheap"
    assert configured.model_called("openai:gpt-5") == "openai:gpt-5"
    twice = Configuration.load(write(FULL.replace('"anthropic:any"', '"openai:gpt-5-mini"')))
    assert twice.model_called("openai:gpt-5-mini") == "cheap"  # the default of the file
    with pytest.raises(ConfigError, match="cheap, other are all openai:gpt-5-mini"):
        Configuration.load(
            write(FULL.replace('"anthropic:any"', '"openai:gpt-5-mini"').replace('model = "cheap"\n', "", 1))
        ).model_called("openai:gpt-5-mini")


def test_main_runs_as_the_agent_that_is_named(tmp_path: Path) -> None:
    """An unknown agent of Main is refused with the nearest name."""
    with pytest.raises(ConfigError, match="no agent is named 'defalt'; did you mean 'default'"):
        SessionTree(
            tmp_path, model=ScriptedModel(["x"]), agent="defalt", backend="local", state_dir=tmp_path / "s"
        )


def test_agents_and_skills_next_to_the_file_are_the_owner_s(write: Write, tmp_path: Path) -> None:
    """Markdown agents join those of the file; one of both, or that others may write, is an error."""
    file = write("[agents.writer]\nprompt = 'Write.'\ntools = ['write']\n")
    agents, skill = file.parent / "agents", file.parent / "skills" / "letters"
    agents.mkdir()
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: letters\ndescription: Writes letters.\n---\n\nBegin.\n")
    reader = agents / "reader.md"
    reader.write_text("---\ntools: read\nskills: [letters]\n---\n\nRead.\n")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    options = Configuration.load(file, workspace=workspace).tree_options(
        agent="reader", model="local:smollm2"
    )
    assert set(options["agents"]) == {"writer", "reader"}
    options["model"] = ScriptedModel(["x"])
    tree = SessionTree(workspace, **options, backend="local", state_dir=tmp_path / "state")
    assert tree._config.agents[0].skills == ("letters",)
    reader.chmod(0o666)
    with pytest.raises(ConfigError, match=r"agents can't be used: .*reader\.md: it is open to other users"):
        Configuration.load(file)
    reader.chmod(0o644)
    (agents / "writer.md").write_text("---\ntools: read\n---\n\nWrite.\n")
    with pytest.raises(ConfigError, match=r"agent 'writer' is in .*sessiontree\.toml' and in .*writer\.md"):
        Configuration.load(file)


def test_files_of_the_documentation_are_valid(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's files: the owner's, what it may say of a workspace, and that workspace's own."""
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text("utf-8")
    owners, trust, theirs, whose = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    workspace = tmp_path / "project"
    workspace.mkdir()
    (workspace / "sessiontree.toml").write_text(theirs)
    monkeypatch.setenv("MY_KEY", SECRET)
    file = write(owners + trust.replace("~/project", str(workspace)))
    options = Configuration.load(file, workspace=workspace).tree_options()
    assert options["model"].name == "openai:gpt-5-mini"
    assert (options["approvals"], options["budget"]) == ("always", Budget(cost_usd=0.5))
    assert (options["limits"].max_turns, options["limits"].max_children) == (30, 2)
    assert options["policy"].tools.deny == ("web_search", "exec")
    assert "> Use tabs." in options["agents"]["reviewer"].config.prompt
    assert options["agents_md"] is None
    file = write(owners + whose.replace("~/project", str(workspace)))
    assert Configuration.load(file, workspace=workspace).tree_options()["agents_md"] == "owner"


WRITERS = """
model = "dear"
compaction_model = "cheap"

[models.dear]
model = "openai:gpt-5"
base_url = "http://127.0.0.1:9/v1"
price = { input_per_million = 9, output_per_million = 9 }

[models.cheap]
model = "openai:gpt-5-mini"
base_url = "http://127.0.0.1:9/v1"
price = { input_per_million = 1, output_per_million = 2 }

[agents.own]
compaction_model = "dear"
"""


def test_compaction_model_is_that_of_the_agent_or_of_the_file(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent's counts first, wherever the agent is written; a variable counts before the file."""
    agents = tmp_path / "owner" / "agents"
    agents.mkdir(parents=True)
    (agents / "plain.md").write_text("---\ndescription: Plain.\n---\nWork.")
    (agents / "file.md").write_text("---\ncompaction_model: openai:gpt-5-nano\n---\nWork.")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (tmp_path / "work").mkdir()
    options = Configuration.load(write(WRITERS)).tree_options()
    named = {name: spec.config.compaction_model for name, spec in options["agents"].items()}
    assert named == {"default": "cheap", "own": "dear", "plain": "cheap", "file": "openai:gpt-5-nano"}
    assert set(options["models"]) == {"cheap", "dear", "openai:gpt-5-nano"}
    tree = SessionTree(tmp_path / "work", **options, state_dir=tmp_path / "s", backend="local")
    assert tree.tree_id
    monkeypatch.setenv("SESSIONTREE_COMPACTION_MODEL", "dear")
    options = Configuration.load(write(WRITERS)).tree_options()
    assert options["agents"]["plain"].config.compaction_model == "dear"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            WRITERS.replace('"cheap"', '"chaep"', 1),
            "did you mean 'cheap'",
        ),
        (WRITERS.replace('compaction_model = "dear"', 'compaction_model = "deer"'), "agent 'own': .*'deer'"),
        (WRITERS.replace("compaction_model", "compaction_modle", 1), "compaction_model"),
        ("compaction_model = 3\n", "compaction_model"),
        ('compaction_model = ""\n', "compaction_model"),
    ],
)
def test_slip_in_a_compaction_model_is_named(write: Write, text: str, error: str) -> None:
    """With the nearest name, and the agent whose it is."""
    with pytest.raises(ConfigError, match=error):
        Configuration.load(write(text)).tree_options()
