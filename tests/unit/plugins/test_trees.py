"""Plugins in a tree: called once when it is made, judged as every tool, configured by whoever opens it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PluginSettings,
    PolicyConfig,
    QueueChannel,
    SessionTree,
    ToolPolicy,
    tool,
)
from sessiontree.policy.settings import ToolLists
from tests.unit.plugins.conftest import Site

RADIO = """
seen = []

def tools(context):
    seen.append(context)

    @tool(tier=PermissionTier.READ_ONLY)
    def tune() -> str:
        "Say what is played."
        return f"{context.config.get('band', 'silence')} in {context.workspace_root.name}"

    @tool(tier=PermissionTier.READ_ONLY, flags=[ToolFlag.OPTIONAL])
    def stations() -> str:
        "List the stations."
        return "none"

    return tune, stations
"""
SECRET = "-".join(["hunter2"] * 2)
"""Not as it is here: the program's modules, this one too, are copied into the state directory."""


def shown(request: ModelRequest) -> str:
    """Return the names of the tools a session is shown, as its final message."""
    return json.dumps([tool.name for tool in request.tools])


NAMING = FunctionModel(shown)


class NamedChannel(QueueChannel):
    """A channel that says what it is called."""

    name = "club radio"
    account = "studio 2"


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What a tree over a workspace of its own is opened with, on each backend."""
    workspace = tmp_path / "ground"
    workspace.mkdir()
    if request.param == "ray":
        return {"model": NAMING, "runtime": request.getfixturevalue("ray_runtime")}
    return {"model": NAMING, "backend": "local", "state_dir": tmp_path / "state"}


@pytest.mark.covers("S23", "A31", "S22")
async def test_factory_is_called_once_for_each_tree(
    site: Site, tmp_path: Path, options: dict[str, Any]
) -> None:
    """When the tree is made, with its agents, channel, group and what the owner says to the plugin."""
    site.install("radio", RADIO)
    tree = SessionTree(
        tmp_path / "ground",
        plugins={"radio": {"config": {"band": "am", "key": SECRET}}},
        agents={"clark": AgentSpec()},
        channel=NamedChannel(),
        group="family",
        **options,
    )
    async with tree:
        assert (await tree.main.call("tune")).output == "am in ground"
        branch = await tree.main.spawn("branch", "listen")
        assert "tune" in json.loads((await branch.result()).summary)
    (told,) = site.seen_by("radio")
    assert (told.plugin_id, told.agent_id, told.agents) == ("radio", "default", ("default", "clark"))
    assert (told.channel, told.group, told.sandboxed) == ("club radio", "family", True)
    assert (told.account, told.tree_id, told.session_id) == ("studio 2", tree.tree_id, "main")
    assert told.agent_dir == tree.state_dir / "agents" / "default"
    assert told.config["key"] == SECRET
    assert not [path for path in tree.state_dir.rglob("*") if SECRET.encode() in _bytes(path)]


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


@pytest.mark.covers("S23")
@pytest.mark.slow
async def test_plugin_is_told_anew_when_a_tree_is_resumed(
    site: Site, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Its configuration is the program's; left out then, its tools are gone."""
    site.install("radio", RADIO)
    async with SessionTree(
        tmp_path / "ground", plugins={"radio": {"config": {"band": "am"}}}, group="family", **options
    ) as tree:
        assert (await tree.main.call("tune")).output == "am in ground"
    again = await SessionTree.resume(tree.tree_id, plugins={"radio": {"config": {"band": "fm"}}}, **options)
    async with again:
        assert (await again.main.call("tune")).output == "fm in ground"
    first, second = site.seen_by("radio")
    for told in (first, second):
        assert (told.tree_id, told.group, told.agent_dir) == (tree.tree_id, "family", first.agent_dir)
    again = await SessionTree.resume(tree.tree_id, plugins={"radio": {"enabled": False}}, **options)
    async with again:
        assert "tune" not in json.loads(await again.main.send("what is there?"))


@pytest.mark.short(2)
@pytest.mark.covers("I35")
@pytest.mark.slow
@pytest.mark.parametrize("named", ["stations", "Radio", "group:plugins"])
async def test_optional_tool_is_there_where_a_list_names_it(
    site: Site, tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    """By its own name, its plugin's id or all plugins' group; by nothing else."""
    site.install("radio", RADIO)
    for policy, is_there in (
        (PolicyConfig(), False),
        (PolicyConfig(tools=ToolPolicy(allow=("*",))), False),
        (PolicyConfig(tools=ToolPolicy(allow=("*", named))), True),
        (
            PolicyConfig(tools=ToolPolicy(allow=("*", named)), plugins={"radio": ToolLists(allow=("tune",))}),
            False,
        ),
    ):
        async with SessionTree(tmp_path / "ground", policy=policy, **options) as tree:
            names = json.loads(await tree.main.send("what is there?"))
            assert ("stations" in names, "tune" in names) == (is_there, True)


@tool
def tune() -> str:
    """Play."""
    return "played"


def test_tool_of_the_program_s_clashes_with_a_plugin_s(
    site: Site, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Both are named; without plugins nothing is."""
    site.install("radio", RADIO)
    with pytest.raises(ConfigError, match=r"'tune': plugin 'radio' of radio 1\.0 .* the program gives"):
        SessionTree(tmp_path / "ground", tools=[tune], **options)
    SessionTree(
        tmp_path / "ground", tools=[tune], plugins={"radio": PluginSettings(enabled=False)}, **options
    )
    SessionTree(tmp_path / "ground", tools=[tune], builtin_tools=False, **options)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (7, "plugins can't be used: the whole: Input should be a valid dictionary"),
        ({"radio": {"enable": True}}, r"radio\.enable: no setting is called that; did you mean 'enabled'\?"),
        ({"radio": {"config": {"key": object}}}, r"radio\.config\.key: "),
        ("radio.yaml", r"must end in \.json or \.toml"),
        ("nowhere.toml", "can't be read"),
        ("broken.json", "is not valid JSON"),
        ("broken.toml", r"radio\.enabled: Input should be a valid boolean"),
    ],
)
def test_settings_that_can_t_be_used_are_refused(
    tmp_path: Path, options: dict[str, Any], said: Any, words: str
) -> None:
    """With the place and without the values, for those may be secrets."""
    (tmp_path / "broken.json").write_text('{"radio": hunter2}')
    (tmp_path / "broken.toml").write_text('[radio]\nenabled = "hunter2"\n')
    given = tmp_path / said if isinstance(said, str) else said
    with pytest.raises(ConfigError, match=words) as caught:
        SessionTree(tmp_path / "ground", plugins=given, **options)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("name", "text"), [
    ("plugins.json", '{"radio": {"config": {"band": "am"}}}'),
    ("plugins.toml", '[radio.config]\nband = "am"\n'),
])  # fmt: skip
async def test_settings_may_lie_in_a_file(
    site: Site, tmp_path: Path, options: dict[str, Any], name: str, text: str
) -> None:
    """JSON or TOML, by its path."""
    site.install("radio", RADIO)
    (tmp_path / name).write_text(text)
    async with SessionTree(tmp_path / "ground", plugins=tmp_path / name, **options) as tree:
        assert (await tree.main.call("tune")).output == "am in ground"


SPY = """
from sessiontree import ToolContext

def tools(context):
    @tool(tier=PermissionTier.SYSTEM, capabilities=["reader"], optional_capabilities=["web"])
    def spy(ctx: ToolContext) -> list[str]:
        "Say what there is."
        names = "reader memory web writer shell channel memory_writer sessions".split()
        return [name for name in names if getattr(ctx, name) is not None]

    return (spy,)
"""


async def test_plugin_s_tool_is_given_what_it_declares(
    site: Site, tmp_path: Path, options: dict[str, Any]
) -> None:
    """The reader it needs and the web it uses where there is one; nothing else that the session holds."""
    site.install("spy", SPY)
    async with SessionTree(tmp_path / "ground", **options) as tree:
        assert (await tree.main.call("spy", {})).output == ["reader", "web"]
    async with SessionTree(tmp_path / "ground", web=None, **options) as tree:
        assert (await tree.main.call("spy", {})).output == ["reader"]


async def test_plugin_whose_tier_is_below_its_capabilities_is_refused(
    site: Site, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Where the tree is made, naming tool, capability and fix."""
    site.install("spy", SPY.replace("SYSTEM", "READ_ONLY").replace('["reader"]', '["shell"]'))
    with pytest.raises(ConfigError, match=r"'spy': its tier is ReadOnly.*'shell'.*declare tier System"):
        SessionTree(tmp_path / "ground", **options)
