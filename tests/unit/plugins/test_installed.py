"""What installed distributions may bring along, and what is said of those that can't be used."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError, PluginContext, PluginSettings
from sessiontree.api.configuration.plugins import InstalledTool, load_installed_tools
from sessiontree_tools import builtin_tools
from tests.unit.plugins.conftest import Site

ONE = """
@tool(tier=PermissionTier.SYSTEM)
def tune(station: str) -> str:
    "Play a station."
    return station
"""
TWO = (
    ONE
    + """
@tool(tier=PermissionTier.READ_ONLY)
def stations() -> str:
    "List the stations."
    return "none"
"""
)


def context() -> PluginContext:
    """Return a tree with two agents."""
    return PluginContext("", Path("/ground"), "default", ("default", "clark"), "terminal", "family")


def found(**settings: dict[str, Any]) -> list[InstalledTool]:
    """Return the tools of plugins, left the house's own."""
    said = {name: PluginSettings.model_validate(each) for name, each in settings.items()}
    return [each for each in load_installed_tools(context(), said) if each.plugin]


@pytest.mark.covers("S22")
@pytest.mark.parametrize(
    ("code", "target", "names"),
    [
        (ONE, "tune", ["tune"]),
        (ONE + "def tools(): return tune", "tools", ["tune"]),
        (TWO + "def tools(context): return [tune, stations]", "tools", ["tune", "stations"]),
        (TWO + "def tools(context=None): yield from (tune, stations) if context else ()", "tools",
         ["tune", "stations"]),
        (ONE + "class Shop:\n    @staticmethod\n    def all(context): return (tune,)", "Shop.all", ["tune"]),
        (ONE + "def tools(context): return None", "tools", []),
        (ONE + "def tools(context): return []", "tools", []),
    ],
    ids=["a tool", "one", "several", "a generator", "a method", "none", "an empty list"],
)  # fmt: skip
def test_entry_point_is_a_tool_or_a_factory(site: Site, code: str, target: str, names: list[str]) -> None:
    """A factory gives one tool, several or none; each knows its plugin, distribution and source."""
    module = site.install("radio", code, target=target)
    tools = found()
    assert [each.tool.name for each in tools] == names
    assert {(each.plugin, each.distribution, each.source) for each in tools} <= {
        ("radio", "radio 1.0", f"{module}:{target}")
    }


@pytest.mark.covers("S23")
def test_factory_is_told_what_the_tree_is_and_its_own_configuration(site: Site) -> None:
    """It may change its copy of the configuration; nobody else sees that."""
    site.install(
        "radio",
        "seen = []\ndef tools(context):\n    seen.append(context)\n    context.config['wave']['band'] = 'fm'",
    )
    site.install("other", "seen = []\ndef tools(context): seen.append(context)")
    config: dict[str, Any] = {"wave": {"band": "am"}}
    said = {"radio": PluginSettings(config=config)}
    load_installed_tools(context(), said)
    load_installed_tools(context(), said)
    assert [each.config for each in site.seen_by("radio")] == [{"wave": {"band": "fm"}}] * 2
    assert config == said["radio"].config == {"wave": {"band": "am"}}
    told = site.seen_by("other")[0]
    assert told == PluginContext(
        "other", Path("/ground"), "default", ("default", "clark"), "terminal", "family"
    )
    assert told.sandboxed
    with pytest.raises(AttributeError):
        told.group = "club"


BROKEN = {
    "raises": ("def tools(context): 1 / 0", "ZeroDivisionError: division by zero"),
    "ends the program": ("raise SystemExit(3)", "SystemExit: 3"),
    "is not there": ("", "has no attribute 'tools'"),
    "can't be imported": ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
    "is no factory": ("tools = 7", "leads to 7, which is neither a Tool nor a factory"),
    "gives text": ("def tools(context): return 'tune'", "gives 'tune'; return a Tool, several"),
    "gives other things": ("def tools(context): return [7]", "returned 7, which is not a Tool"),
    "waits": ("async def tools(context): return None", "its factory is async"),
    "wants more": ("def tools(context, more): return None", "missing 1 required positional argument"),
    "declares badly": (ONE + "tune.name = 'no name'\ntools = tune", "name is 'no name'; give"),
}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
def test_broken_plugin_is_an_error_that_names_its_distribution(site: Site, how: str) -> None:
    """And says how to do without it, which works."""
    code, words = BROKEN[how]
    module = site.install("bad-radio", code, plugin="radio")
    with pytest.raises(ConfigError) as caught:
        found()
    said = str(caught.value)
    assert words in said
    for part in ("plugin 'radio' of bad-radio 1.0", f"'{module}:tools'", "{'radio': {'enabled': False}}"):
        assert part in said
    assert found(radio={"enabled": False}) == []


@pytest.mark.covers("A31")
def test_what_is_left_out_is_not_loaded_whatever_its_name(site: Site) -> None:
    """Nothing of it runs; ids are compared as names in lists are."""
    module = site.install("loud", "open('/nowhere/at/all')", plugin="Loud-Radio")
    assert found(loud_radio={"enabled": False}) == []
    assert module not in sys.modules


CLASHES = {
    "two plugins claim one tool": (
        ("am", ONE + "tools = tune", "am"),
        ("fm", ONE + "tools = tune", "fm"),
        ["two tools are called 'tune'", "plugin 'am' of am 1.0", "plugin 'fm' of fm 1.0"],
    ),
    "an alias is claimed": (
        ("am", ONE + "tools = tune", "am"),
        ("fm", TWO + "stations.aliases = ('Tune',)\ntools = stations", "fm"),
        ["two tools are called 'Tune'", "am 1.0", "fm 1.0"],
    ),
    "two plugins have one id": (
        ("am", ONE + "tools = tune", "radio"),
        ("fm", TWO + "tools = stations", "Radio"),
        ["two plugins have the id", "am 1.0", "fm 1.0"],
    ),
    "a tool takes a name of this package": (
        ("am", ONE + "tune.name = 'read'\ntools = tune", "am"),
        ("fm", TWO + "tools = stations", "fm"),
        ["two tools are called 'read'", "am 1.0", "reserved"],
    ),
    "a tool takes another name of a tool of this package": (
        ("am", ONE + "tune.aliases = ('Bash',)\ntools = tune", "am"),
        ("fm", TWO + "tools = stations", "fm"),
        ["two tools are called 'Bash'", "am 1.0", "has exec"],
    ),
    "an id is a tool's name": (
        ("am", ONE + "tools = tune", "Exec"),
        ("fm", TWO + "tools = stations", "fm"),
        ["'Exec' of am 1.0", "is the name of this package's tool exec"],
    ),
    "an id is a pattern": (
        ("am", ONE + "tools = tune", "group.*"),
        ("fm", TWO + "tools = stations", "fm"),
        ["of am 1.0", "can't be named in a list"],
    ),
}


@pytest.mark.covers("S21")
@pytest.mark.parametrize("how", CLASHES)
def test_clash_names_both_sides(site: Site, how: str) -> None:
    """And with it the distributions to choose between."""
    first, second, words = CLASHES[how]
    for distribution, code, plugin in (first, second):
        site.install(distribution, code, plugin=plugin)
    with pytest.raises(ConfigError) as caught:
        found()
    for part in words:
        assert part in str(caught.value)


def test_settings_for_a_plugin_nobody_installed_are_an_error(site: Site) -> None:
    """A slip in the name of one that is to be left out would leave it in."""
    site.install("radio", ONE + "tools = tune")
    with pytest.raises(ConfigError, match="'raido': not installed; installed: radio"):
        found(raido={"enabled": False})


def test_this_package_s_own_tools_are_no_plugin_s(site: Site) -> None:
    """They come first, whatever else is installed."""
    site.install("aaa", ONE + "tools = tune")
    tools = load_installed_tools(context())
    assert [each.tool.name for each in tools] == [*(each.name for each in builtin_tools()), "tune"]
    assert {each.plugin for each in tools} == {"", "aaa"}


def test_distribution_is_found_once_it_is_installed_and_no_longer(site: Site) -> None:
    """A program that runs on sees what was installed or removed since it made its last tree."""
    assert found() == []
    site.install("radio", ONE, target="tune")
    assert [each.plugin for each in found()] == ["radio"]
    site.install("television", ONE.replace("tune", "watch"), target="watch")
    assert [each.plugin for each in found()] == ["radio", "television"]
    shutil.rmtree(site.folder / "radio-1.0.dist-info")
    assert [each.plugin for each in found()] == ["television"]
