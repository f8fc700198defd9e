"""``explain`` names the first step that removed a tool, in the specification's order, and what of it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, TypeAlias

import pytest
from hypothesis import Phase, given, settings
from rich.pretty import pretty_repr

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tools.tool import ToolFlag
from sessiontree.policy.catalog import CATALOG, CatalogRow
from sessiontree.policy.compiled import CompiledPolicy, apply_steps, compile_policy, find_first_removal
from sessiontree.policy.settings import ApplyPatchPolicy, PolicyConfig, ProfiledTools, ToolLists, ToolPolicy
from sessiontree.policy.steps import Standing, Step, build_steps
from sessiontree.policy.vocabulary import Vocabulary
from tests.unit.policy.policy_strategies import (
    PLAIN_ENTRIES,
    PLUGGED,
    ROWS,
    STANDINGS,
    configs,
    removing_twice,
)

StepsOf: TypeAlias = Callable[[PolicyConfig, Standing, Vocabulary], tuple[Step, ...]]
PAIRS = list(combinations(range(1, 10), 2))
"""All pairs of the nine steps."""
SEARCH = settings(max_examples=100, derandomize=True, database=None, phases=[Phase.generate])

MAIN = Standing(SessionKind.MAIN, is_owner=True)
BRANCH = Standing(SessionKind.BRANCH, is_owner=False, agent="clerk", model="openai/gpt-5", group="family")

PROFILES = {
    "minimal": "session_status",
    "coding": "read write edit apply_patch exec process memory_search memory_get sessions_list "
    "sessions_history sessions_send sessions_spawn subagents session_status program tool_search image "
    "find grep",
    "messaging": "sessions_list sessions_history sessions_send session_status message",
}
"""Seed 001, section 2.2; ``find``, ``grep``, ``program`` and ``tool_search`` are this house's."""


def expansion(entry: str, rows: Mapping[str, CatalogRow]) -> set[str]:
    """Return what a plain entry stands for, worked out without the code under test."""
    if entry == "*":
        return set(rows)
    if entry == "group:openclaw":
        return {name for name, row in rows.items() if row.in_openclaw}
    if entry == "group:plugins":
        return {name for name, row in rows.items() if row.plugin}
    if entry.startswith("group:"):
        return {name for name, row in rows.items() if f"group:{row.section}" == entry}
    return {entry} & set(rows)


def by_hand(config: PolicyConfig, standing: Standing, rows: Mapping[str, CatalogRow]) -> dict[str, str]:
    """Return tool to the label of the first of the nine that removes it, in the order of the seeds."""
    provider = standing.model.replace(":", "/").lower()
    agent = config.agents.get(standing.agent, ToolPolicy())

    def exact(policy: ToolPolicy) -> ProfiledTools:
        said = {key.lower(): lists for key, lists in policy.by_provider.items()}
        return said.get(provider) or said.get(provider.partition("/")[0]) or ProfiledTools()

    wide, narrow = exact(config.tools), exact(agent)
    steps: list[tuple[str, str | None, tuple[str, ...] | None, tuple[str, ...]]] = []
    pairs = [("tools.profile", agent, config.tools), ("tools.byProvider.profile", narrow, wide)]
    for label, near, far in pairs:
        profile = near.profile or far.profile
        also = far.also_allow if near.also_allow is None else near.also_allow
        if profile is not None:
            steps.append((f"{label} ({profile})", profile, also or (), ()))
    scopes: list[tuple[str, ToolLists]] = [
        ("tools.allow", config.tools),
        ("tools.byProvider.allow", wide),
        (f"agents.{standing.agent}.tools.allow", agent),
        (f"agents.{standing.agent}.tools.byProvider.allow", narrow),
        ("group tools.allow", config.groups.get(standing.group, ToolLists())),
        ("sandbox tools.allow", config.sandbox),
    ]
    if standing.kind is not SessionKind.MAIN:
        scopes.append(("subagent tools.allow", config.subagents))
    steps += [(label, None, lists.allow, lists.deny) for label, lists in scopes]
    gone: dict[str, str] = {}
    for label, included, allow, deny in steps:
        kept = set(PROFILES.get(included or "", "").split())
        if included == "full" or (included is None and allow is None):
            kept = set(rows)
        for entry in allow or ():
            kept |= expansion(entry, rows)
        for entry in deny:
            kept -= expansion(entry, rows)
        for name in rows.keys() - kept:
            gone.setdefault(name, label)
    return gone


def names_the_first(steps_of_: StepsOf) -> None:
    """Property: of the nine, the first remover in the seeds' order is the one that is named."""
    rows = {row.name: row for row in ROWS if not row.flags}
    words = Vocabulary(rows.values())

    def check(config: PolicyConfig, standing: Standing) -> None:
        steps = [step for step in steps_of_(config, standing, words) if step.number]
        assert [step.number for step in steps] == sorted({step.number for step in steps})
        decision = apply_steps(steps, words)
        expected = by_hand(config, standing, rows)
        assert decision.kept == rows.keys() - expected.keys()
        for name, label in expected.items():
            removal = find_first_removal(decision, words, name)
            assert removal is not None
            assert removal.step == label

    for pair in PAIRS:
        check(removing_twice(*pair), BRANCH)
    SEARCH(given(configs(PLAIN_ENTRIES), STANDINGS)(check))()


@pytest.mark.covers("C8", "S41", "S49", "REL-P4")
@pytest.mark.slow
def test_explain_names_the_first_remover() -> None:
    """For any policy, session and tool."""
    names_the_first(build_steps)


def _swapped(first: int, second: int) -> StepsOf:
    """Planted: two of the nine stand in each other's place."""

    def planted(config: PolicyConfig, standing: Standing, words: Vocabulary) -> tuple[Step, ...]:
        steps = list(build_steps(config, standing, words))
        places = {step.number: at for at, step in enumerate(steps) if step.number}
        if first in places and second in places:
            one, other = places[first], places[second]
            steps[one], steps[other] = steps[other], steps[one]
        return tuple(steps)

    return planted


def _exchanged(first: int, second: int) -> StepsOf:
    """Planted: two of the nine stand in each other's place and bear each other's numbers."""
    numbers = {first: second, second: first}

    def planted(config: PolicyConfig, standing: Standing, words: Vocabulary) -> tuple[Step, ...]:
        return tuple(
            replace(step, number=numbers.get(step.number, step.number))
            for step in _swapped(first, second)(config, standing, words)
        )

    return planted


def providers_forgotten(config: PolicyConfig, standing: Standing, words: Vocabulary) -> tuple[Step, ...]:
    """Planted: what is said of a model counts for nobody."""
    return tuple(step for step in build_steps(config, standing, words) if "byProvider" not in step.label)


def main_is_a_subagent(config: PolicyConfig, standing: Standing, words: Vocabulary) -> tuple[Step, ...]:
    """Planted: Main is judged as its children are."""
    steps = build_steps(config, standing, words)
    lists = config.subagents
    is_said = lists.allow is not None or bool(lists.deny)
    if standing.kind is SessionKind.MAIN and is_said:
        return (*steps, Step("subagent tools.allow", 9, allow=lists.allow, deny=lists.deny))
    return steps


PLANTED = [_swapped(3, 5), _swapped(7, 8), providers_forgotten, main_is_a_subagent]


@pytest.mark.covers("S41", "REL-P4")
@pytest.mark.parametrize("planted", PLANTED)
def test_swapped_steps_are_found(planted: StepsOf) -> None:
    """Two steps in each other's place, left out, or asked of the wrong session fail the property."""
    with pytest.raises(AssertionError):
        names_the_first(planted)


@pytest.mark.covers("C8", "S41")
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_explain_notices_any_two_steps_exchanged(first: int, second: int) -> None:
    """Each of the 36 exchanges of two steps, numbers and all, fails the property."""
    with pytest.raises(AssertionError):
        names_the_first(_exchanged(first, second))


def removal_of(tool: str, standing: Standing, **said: Any) -> dict[str, Any]:
    """Return what ``explain`` says of a tool under a policy."""
    return CompiledPolicy(ROWS, PolicyConfig(**said)).explain(tool, standing).to_json()


@pytest.mark.covers("S42")
def test_every_step_has_the_specification_s_label() -> None:
    """All nine at once, in the seeds' order with their labels."""
    lists, profiled = ToolLists(deny=("tts",)), ProfiledTools(profile="full", deny=("tts",))
    policy = ToolPolicy(profile="full", deny=("tts",), by_provider={"openai": profiled})
    config = PolicyConfig(
        tools=policy, agents={"clerk": policy}, groups={"family": lists}, sandbox=lists, subagents=lists
    )
    steps = [step for step in build_steps(config, BRANCH, Vocabulary(ROWS)) if step.number]
    assert [(step.number, step.label) for step in steps] == [
        (1, "tools.profile (full)"),
        (2, "tools.byProvider.profile (full)"),
        (3, "tools.allow"),
        (4, "tools.byProvider.allow"),
        (5, "agents.clerk.tools.allow"),
        (6, "agents.clerk.tools.byProvider.allow"),
        (7, "group tools.allow"),
        (8, "sandbox tools.allow"),
        (9, "subagent tools.allow"),
    ]


def test_explanation_names_list_and_entry() -> None:
    """The deny entry as it is written; the profile; nothing where an allow list lacks the tool."""
    assert removal_of("Shell", MAIN, tools=ToolPolicy(deny=("read", "group:runtime"))) == {
        "tool": "exec",
        "kept": False,
        "step": "tools.allow",
        "number": 3,
        "by": "deny",
        "pattern": "group:runtime",
        "why": "its deny list holds 'group:runtime'",
        "note": "",
    }
    by_profile = removal_of("web_fetch", MAIN, tools=ToolPolicy(profile="coding"))
    assert (by_profile["by"], by_profile["pattern"]) == ("profile", "coding")
    by_allow = removal_of("read", MAIN, sandbox=ToolLists(allow=()))
    assert (by_allow["by"], by_allow["pattern"], by_allow["why"]) == (
        "allow",
        None,
        "its allow list is empty",
    )
    assert removal_of("read", MAIN)["kept"] is True
    assert removal_of("no_such", MAIN)["why"] == "no tool here is called that"


@pytest.mark.covers("S38")
def test_what_comes_before_the_nine_is_named_first() -> None:
    """Kind, channel, web, plugin, optional, ``apply_patch``, owners: each with a reason and number 0."""
    denied = ToolPolicy(deny=("*",))
    worker = Standing(SessionKind.WORKER, is_owner=False)
    assert removal_of("write", worker, tools=denied)["step"] == "kind worker"
    mute = removal_of("message", replace(MAIN, has_channel=False), tools=denied)
    assert (mute["step"], mute["number"]) == ("channel", 0)
    assert "no session at or above this one has one; give the tree channel=" in mute["why"]
    assert removal_of("write", replace(MAIN, has_channel=False))["kept"] is True
    unsearched = removal_of("web_search", replace(MAIN, web="pages"), tools=denied)
    assert (unsearched["step"], unsearched["number"]) == ("web search", 0)
    assert "web=WebSettings(search_url=…)" in unsearched["why"]
    assert removal_of("web_fetch", replace(MAIN, web="pages"))["kept"] is True
    assert removal_of("web_fetch", replace(MAIN, web="none"), tools=denied)["step"] == "web"
    named = replace(MAIN, named=frozenset({"tts"}))
    silent = removal_of("tts", replace(named, has_speech=False), tools=denied)
    assert (silent["kept"], silent["step"]) == (False, "speech")
    assert "install espeak-ng" in silent["why"]
    assert removal_of("tts", named)["kept"] is True
    by_plugin = removal_of("tune", MAIN, tools=denied, plugins={"radio": ToolLists(allow=("stations",))})
    assert (by_plugin["step"], by_plugin["number"], by_plugin["by"]) == ("plugin radio", 0, "allow")
    assert removal_of("stations", MAIN, tools=denied)["step"] == "optional"
    patch = removal_of("apply_patch", Standing(SessionKind.MAIN, True, model="anthropic/opus"), tools=denied)
    assert patch["step"] == "apply_patch"
    assert "'anthropic/opus' is not one of OpenAI's" in patch["why"]
    gateway = removal_of("gateway", BRANCH, tools=ToolPolicy(allow=("gateway",), deny=("*",)))
    assert (gateway["step"], gateway["why"]) == ("owner only", "Tool restricted to owner senders.")


@pytest.mark.covers("U15")
def test_plugin_s_filter_judges_its_own_tools_alone() -> None:
    """An allow list of a plugin leaves everybody else's tools alone."""
    policy = CompiledPolicy(ROWS, PolicyConfig(plugins={"radio": ToolLists(allow=("tune",))}))
    kept = policy.decide(MAIN).kept
    assert "tune" in kept
    assert "Station-List" not in kept
    assert {"read", "exec", "ledger"} <= kept


def test_plugin_s_tools_that_its_own_list_denies_are_gone() -> None:
    """The list's entry is named, and the plugin's other tools stay."""
    config = PolicyConfig(plugins={"radio": ToolLists(deny=("tune",))})
    kept = CompiledPolicy(ROWS, config).decide(MAIN).kept
    assert {row.name for row in ROWS} - kept >= {"tune"}
    assert {"read", "exec", "ledger"} <= kept
    found = removal_of("tune", MAIN, plugins=config.plugins)
    assert (found["step"], found["by"], found["pattern"]) == ("plugin radio", "deny", "tune")


def test_every_entry_of_a_deny_list_counts() -> None:
    """A later one brings nothing back that an earlier one removed."""
    config = PolicyConfig(tools=ToolPolicy(deny=("read", "write", "group:web")))
    kept = CompiledPolicy(ROWS, config).decide(MAIN).kept
    assert not kept & {"read", "write", "web_fetch", "web_search"}
    assert {"edit", "exec"} <= kept


@pytest.mark.parametrize("key", ["openai/gpt-5", "openai:gpt-5", "OpenAI/GPT-5"])
def test_settings_of_one_model_come_before_those_of_its_provider(key: str) -> None:
    """However the owner writes its name; other models of the provider keep the provider's."""
    lists = {key: ProfiledTools(deny=("read",)), "openai": ProfiledTools(deny=("write",))}
    policy = CompiledPolicy(ROWS, PolicyConfig(tools=ToolPolicy(by_provider=lists)))
    one = policy.decide(replace(MAIN, model="openai/gpt-5")).kept
    other = policy.decide(replace(MAIN, model="openai/gpt-4")).kept
    assert ("read" in one, "write" in one) == (False, True)
    assert ("read" in other, "write" in other) == (True, False)


def test_unknown_name_is_not_held() -> None:
    """It is explained like any tool that is not held, by rule 0."""
    found = CompiledPolicy(ROWS, PolicyConfig()).explain("exce", MAIN)
    assert (found.tool, found.kept) == ("exce", False)
    assert found.removal is not None
    assert (found.removal.step, found.removal.number, found.removal.by) == ("tools", 0, "rule")
    assert "did you mean 'exec'?" in found.removal.why


@pytest.mark.covers("I35")
@pytest.mark.parametrize("entry", ["Station-List", "stations", "radio", "group:plugins"])
def test_optional_tool_is_offered_where_a_list_names_it(entry: str) -> None:
    """Its name, its plugin or all plugins; ``*`` names nothing."""
    with_it = PolicyConfig(tools=ToolPolicy(allow=("*", entry)))
    without = PolicyConfig(tools=ToolPolicy(allow=("*",)))
    assert "Station-List" in CompiledPolicy(PLUGGED, with_it).decide(MAIN).kept
    assert "Station-List" not in CompiledPolicy(PLUGGED, without).decide(MAIN).kept


@pytest.mark.covers("S5")
@pytest.mark.parametrize(
    ("model", "offer", "models", "kept"),
    [
        ("openai/gpt-5", "openai", (), True),
        ("openai-codex:gpt-5", "openai", (), True),
        ("OPENAI:GPT-5", "openai", ("gpt-5",), True),
        ("openai/gpt-5", "openai", ("openai/gpt-5",), True),
        ("openai/gpt-4", "openai", ("gpt-5",), False),
        ("anthropic/opus", "openai", (), False),
        ("openair/gpt-5", "openai", (), False),
        ("", "openai", (), False),
        ("anthropic/opus", "always", ("gpt-5",), True),
    ],
)
def test_apply_patch_is_for_the_models_that_know_it(
    model: str, offer: Any, models: tuple[str, ...], kept: bool
) -> None:
    """Where the provider is OpenAI's and the model is not left out; ``always`` forces it."""
    config = PolicyConfig(apply_patch=ApplyPatchPolicy(offer=offer, models=models))
    standing = Standing(SessionKind.MAIN, is_owner=True, model=model)
    assert ("apply_patch" in CompiledPolicy(CATALOG, config).decide(standing).kept) is kept


@pytest.mark.covers("S17")
def test_also_allow_adds_to_the_profile_and_to_nothing_else() -> None:
    """It is no list of its own: without a profile it adds nothing, alongside a list it lets nothing in."""
    also = ("web_*",)
    with_profile = CompiledPolicy(ROWS, PolicyConfig(tools=ToolPolicy(profile="minimal", also_allow=also)))
    assert with_profile.decide(MAIN).kept == {"session_status", "web_search", "web_fetch"}
    beside = PolicyConfig(tools=ToolPolicy(profile="minimal", allow=("session_status",), also_allow=also))
    assert CompiledPolicy(ROWS, beside).decide(MAIN).kept == {"session_status"}
    empty = PolicyConfig(tools=ToolPolicy(allow=(), also_allow=also))
    assert CompiledPolicy(ROWS, empty).decide(MAIN).kept == frozenset()


def test_agent_s_profile_and_additions_stand_for_everybody_s() -> None:
    """The narrower scope speaks where it says anything; lists of both count."""
    config = PolicyConfig(
        tools=ToolPolicy(profile="messaging", also_allow=("read",), deny=("write",)),
        agents={"clerk": ToolPolicy(profile="minimal", also_allow=())},
    )
    policy = CompiledPolicy(CATALOG, config)
    assert "read" in policy.decide(MAIN).kept
    clerk = Standing(SessionKind.MAIN, is_owner=True, agent="clerk")
    assert policy.decide(clerk).kept == {"session_status"}


@pytest.mark.parametrize("entry", ["ba*", "Shell", "group:runtime", "*e*"])
def test_deny_list_reaches_side_names(entry: str) -> None:
    """What the entry could call a tool by is enough to remove it."""
    assert "exec" not in CompiledPolicy(ROWS, PolicyConfig(tools=ToolPolicy(deny=(entry,)))).decide(MAIN).kept


def test_explanations_show_themselves() -> None:
    """In one line, and as rich shows objects."""
    policy = CompiledPolicy(ROWS, PolicyConfig(tools=ToolPolicy(deny=("exec",))))
    gone, held = policy.explain("bash", MAIN), policy.explain("read", MAIN)
    assert str(gone) == "exec is removed by step 3, tools.allow: its deny list holds 'exec'"
    assert str(held) == "read is held"
    assert pretty_repr(held) == "Explanation(tool='read', kept=True)"
    assert "step='tools.allow'" in pretty_repr(gone)
    assert [each.tool for each in policy.removed(MAIN)] == [
        "apply_patch", "exec", "http_request", "sessions_list", "sessions_history", "sessions_send",
        "program", "browser", "canvas", "ask_user", "cron", "gateway", "nodes", "agents_list", "image", "tts",
        "write_html", "preview_screenshot", "validate_page", "deploy_preview", "Station-List",
    ]  # fmt: skip


def test_policy_is_compiled_once() -> None:
    """Equal tools and an equal policy are the same object; another list or another tool is another one."""
    config = PolicyConfig(tools=ToolPolicy(deny=("exec",)))
    first = compile_policy(ROWS, config)
    assert compile_policy(tuple(ROWS), PolicyConfig(tools=ToolPolicy(deny=("exec",)))) is first
    assert compile_policy(ROWS[1:], config) is not first
    assert compile_policy(ROWS, PolicyConfig()) is not first
    assert first.decide(MAIN) is first.decide(Standing(SessionKind.MAIN, is_owner=True))


@pytest.mark.parametrize("answer", ["ask", "deny"])
def test_untrusted_text_is_noted_where_it_changes_an_answer(answer: Any) -> None:
    """A tool above ReadOnly, in a session that has taken some in, if the session holds the tool at all."""
    config = PolicyConfig(after_untrusted=answer, tools=ToolPolicy(deny=("exec",)))
    policy, tainted = CompiledPolicy(ROWS, config), replace(MAIN, is_tainted=True)
    assert f"after_untrusted is {answer!r}" in policy.explain("write", tainted).note
    assert policy.explain("write", MAIN).note == ""
    assert policy.explain("read", tainted).note == ""
    assert policy.explain("exec", tainted).note == ""


def test_what_programs_need_is_named_where_it_is_missing() -> None:
    """Both tools go with the interpreter; the search, where an agent is offered all tools."""
    policy = CompiledPolicy(CATALOG, PolicyConfig(tools=ToolPolicy(profile="coding")))
    for kind in SessionKind:
        held = Standing(kind, is_owner=False)
        assert {"program", "tool_search"} <= policy.decide(held).kept
        without = replace(held, has_interpreter=False)
        assert "install sessiontree[programs]" in str(policy.explain("program", without))
        assert not {"program", "tool_search"} & policy.decide(without).kept
        offered = replace(held, has_tool_search=False)
        assert "tools_offered='program'" in str(policy.explain("tool_search", offered))
        assert "program" in policy.decide(offered).kept


OPTIONAL = [row for row in CATALOG if ToolFlag.OPTIONAL in row.flags and not row.plugin]


@pytest.mark.parametrize("row", OPTIONAL, ids=lambda row: row.name)
@pytest.mark.parametrize("profile", ["minimal", "coding", "messaging"])
def test_optional_tool_comes_with_the_profile_that_includes_it(row: CatalogRow, profile: Any) -> None:
    """It is asked for by that profile, and by no other; without a profile nothing asks for it."""
    chosen = CompiledPolicy(CATALOG, PolicyConfig(tools=ToolPolicy(profile=profile)))
    assert (row.name in chosen.decide(MAIN).kept) is (profile in row.profiles)
    assert row.name not in CompiledPolicy(CATALOG, PolicyConfig()).decide(MAIN).kept
