"""Policies as files hold them: both spellings, both forms, and every slip reported with its place."""

from __future__ import annotations

import pytest

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.policy.compiled import CompiledPolicy
from sessiontree.policy.settings import PolicyConfig, ProfiledTools, ToolLists, ToolPolicy, parse_policy
from sessiontree.policy.steps import Standing
from tests.unit.policy.policy_strategies import ROWS

JSON = """{
  "tools": {"profile": "coding", "alsoAllow": ["web_fetch"], "deny": ["exec"],
            "byProvider": {"openai/gpt-5": {"allow": ["read"]}}},
  "agents": {"clerk": {"tools": {"allow": ["read"]}}, "other": {"deny": ["write"]}},
  "plugins": {"radio": {"tools": {"allow": ["tune"]}}},
  "strict": true
}"""
TOML = """
strict = true
[tools]
profile = "coding"
also_allow = ["web_fetch"]
deny = ["exec"]
[tools.by_provider."openai/gpt-5"]
allow = ["read"]
[agents.clerk]
allow = ["read"]
[agents.other.tools]
deny = ["write"]
[plugins.radio]
allow = ["tune"]
"""


def test_both_forms_and_both_spellings_say_the_same() -> None:
    """As the specification writes it, and as this house does."""
    wanted = PolicyConfig(
        tools=ToolPolicy(
            profile="coding",
            also_allow=("web_fetch",),
            deny=("exec",),
            by_provider={"openai/gpt-5": ProfiledTools(allow=("read",))},
        ),
        agents={"clerk": ToolPolicy(allow=("read",)), "other": ToolPolicy(deny=("write",))},
        plugins={"radio": ToolLists(allow=("tune",))},
        strict=True,
    )
    assert parse_policy(JSON, form="json", place="p") == wanted
    assert parse_policy(TOML, form="toml", place="p") == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "policy p is not valid JSON"),
        ("[" * 100_000, "policy p is not valid JSON"),
        ("[]", "policy p can't be used: the whole"),
        ('{"tool": {}}', "tool: no setting is called that; did you mean 'tools'?"),
        ('{"tools": {"alow": []}}', "tools.alow: no setting is called that; did you mean 'allow'?"),
        ('{"tools": {"allow": "read"}}', "tools.allow"),
        ('{"tools": {"deny": [""]}}', "tools.deny.0"),
        ('{"tools": {"profile": "everything"}}', "tools.profile"),
        ('{"agents": {"a": {"tools": {}, "allow": []}}}', "agents.a.tools: no setting is called that"),
        ('{"groups": {"g": {"profile": "full"}}}', "groups.g.profile: no setting is called that"),
    ],
)
def test_file_that_says_something_else_is_refused(text: str, words: str) -> None:
    """A misspelt member must not leave a tool in: it is an error, with its place."""
    with pytest.raises(ConfigError) as caught:
        parse_policy(text, form="json", place="p")
    assert words in str(caught.value)


def test_settled_policy_cannot_change() -> None:
    """Configuration is frozen."""
    with pytest.raises(ValueError, match="frozen"):
        PolicyConfig().strict = True


SLIPS = [
    (
        PolicyConfig(tools=ToolPolicy(deny=("exce",))),
        "tools.deny: 'exce' does not name a tool; did you mean 'exec'?",
    ),
    (
        PolicyConfig(tools=ToolPolicy(allow=("group:fz",))),
        "tools.allow: 'group:fz' does not name a tool; did you mean 'group:fs'?",
    ),
    (
        PolicyConfig(agents={"a": ToolPolicy(by_provider={"x": ProfiledTools(deny=("no_*_such",))})}),
        "agents.a.tools.byProvider.x.deny: 'no_*_such' does not name a tool",
    ),
    (
        PolicyConfig(tools=ToolPolicy(also_allow=("read",))),
        "tools.alsoAllow adds to a profile's list, and no profile is set",
    ),
    (PolicyConfig(groups={"g": ToolLists(deny=("?",))}), "groups.g.tools.deny: '?' does not name a tool"),
    (PolicyConfig(plugins={"tv": ToolLists()}), "plugins.tv: no plugin of that id brings a tool along"),
    (PolicyConfig(sandbox=ToolLists(deny=("q",))), "sandbox.tools.deny: 'q' does not name a tool"),
    (PolicyConfig(subagents=ToolLists(allow=("q",))), "subagents.tools.allow: 'q' does not name a tool"),
]


@pytest.mark.parametrize(("config", "words"), SLIPS)
def test_slip_is_told_and_in_a_strict_policy_an_error(config: PolicyConfig, words: str) -> None:
    """The list is used as it is; strict refuses the policy."""
    assert CompiledPolicy(ROWS, config).warnings == (words,)
    with pytest.raises(ConfigError) as caught:
        CompiledPolicy(ROWS, config.model_copy(update={"strict": True}))
    assert words in str(caught.value)


def test_what_the_table_names_is_no_slip() -> None:
    """Tools to come, aliases, groups that are empty here, and globs over them are known names."""
    entries = ("browser", "Bash", "group:media", "group:plugins", "group:openclaw", "sessions_*", "*")
    config = PolicyConfig(tools=ToolPolicy(deny=entries), strict=True)
    assert CompiledPolicy((), config).warnings == ()


def test_no_list_is_ever_dropped() -> None:
    """An allow list of unknown names alone lets nothing stay, whatever else is wrong with it."""
    policy = CompiledPolicy(ROWS, PolicyConfig(tools=ToolPolicy(allow=("nothing", "radio_*"))))
    assert len(policy.warnings) == 2
    assert policy.decide(Standing(SessionKind.MAIN, is_owner=True)).kept == frozenset()
