"""Who answers for an agent: what it names, as the program named it, then by the models' own names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree import AgentConfig, AgentSpec, ConfigError, PolicyWarning, ProviderModel, ScriptedModel
from sessiontree.api.agents.model_choice import add_models, resolve_models, warn_of_many_tools
from sessiontree.models.port import Model

Choose = Callable[[Model, Mapping[str, Model] | None, Mapping[str, AgentSpec]], dict[str, Model]]
Choice = tuple[Model, dict[str, Model], dict[str, AgentSpec]]
SEARCH = settings(max_examples=500, derandomize=True, database=None, phases=[Phase.generate])
NAMES = ("a", "b", "c")
MODELS = st.sampled_from(NAMES).map(lambda name: ScriptedModel(["x"], name))
AGENTS = st.dictionaries(
    st.sampled_from(("default", "other")),
    st.sampled_from(("", *NAMES)).map(lambda name: AgentSpec(config=AgentConfig(model=name))),
    min_size=1,
)
CHOICES: st.SearchStrategy[Choice] = st.tuples(
    MODELS, st.dictionaries(st.sampled_from(NAMES), MODELS, max_size=2), AGENTS
)


def each_agent_has_its_own(choose: Choose, choice: Choice) -> None:
    """Property: the program's name goes first, then the tree's model, then the others, in their order."""
    model, models, agents = choice
    known = (model, *models.values())
    for agent, spec in agents.items():
        wanted = spec.config.model
        named = [each for each in known if each.name == wanted]
        meant = model if not wanted else models.get(wanted, named[0] if named else None)
        if meant is None:
            with pytest.raises(ConfigError, match=f"no model is called '{wanted}'"):
                choose(model, models, {agent: spec})
        else:
            assert choose(model, models, {agent: spec}) == {agent: meant}


@given(CHOICES)
def test_choice_of_models_is_each_agents_own(choice: Choice) -> None:
    """Whatever names there are, and however they collide."""
    each_agent_has_its_own(resolve_models, choice)


def _always_the_trees(
    model: Model, models: Mapping[str, Model] | None, agents: Mapping[str, AgentSpec]
) -> dict[str, Model]:
    return dict.fromkeys(agents, model)


def _own_names_first(
    model: Model, models: Mapping[str, Model] | None, agents: Mapping[str, AgentSpec]
) -> dict[str, Model]:
    return resolve_models(
        model, {each.name: each for each in (models or {}).values()} | {model.name: model}, agents
    )


def _unknown_is_the_trees(
    model: Model, models: Mapping[str, Model] | None, agents: Mapping[str, AgentSpec]
) -> dict[str, Model]:
    try:
        return resolve_models(model, models, agents)
    except ConfigError:
        return dict.fromkeys(agents, model)


@pytest.mark.parametrize("broken", [_always_the_trees, _own_names_first, _unknown_is_the_trees])
def test_choice_property_notices_a_wrong_choice(broken: Choose) -> None:
    """It fails where one model answers for all, names clash the other way, or a slip is not noticed."""

    def fails(choice: Choice) -> bool:
        try:
            each_agent_has_its_own(broken, choice)
        except (AssertionError, ConfigError, pytest.fail.Exception):
            return True
        return False

    assert find(CHOICES, fails, settings=SEARCH)


def test_agent_knows_the_name_and_context_of_its_model() -> None:
    """Its own number of tokens goes before the model's; results are cut to a share of it."""
    agents = {
        "default": AgentSpec(),
        "wide": AgentSpec(config=AgentConfig(model="big")),
        "own": AgentSpec(config=AgentConfig(model="big", context_tokens=50_000)),
    }
    big = ScriptedModel(["x"], "anthropic:big", context_tokens=1_000_000)
    chosen = resolve_models(ScriptedModel(["x"], context_tokens=10_000), {"big": big}, agents)
    configs = [spec.config for spec in add_models(agents, chosen).values()]
    assert [each.model for each in configs] == ["scripted", "anthropic:big", "anthropic:big"]
    assert [each.context_tokens for each in configs] == [10_000, 1_000_000, 50_000]
    assert [each.max_result_chars for each in configs] == [12_000, 400_000, 60_000]


@pytest.mark.parametrize("name", ["openai:gpt-5", "openai-responses:gpt-5"])
def test_more_tools_than_a_provider_takes_are_warned_of(name: str, recwarn: pytest.WarningsRecorder) -> None:
    """Another server may take more, and so may an agent that names its tools."""
    model = ProviderModel(name, api_key="none")
    few, many = [f"t{n}" for n in range(128)], [f"t{n}" for n in range(129)]
    agents = {"default": AgentSpec(), "chosen": AgentSpec(tools=("t1",))}
    chosen: dict[str, Model] = dict.fromkeys(agents, model)
    warn_of_many_tools(agents, chosen, few)
    elsewhere = ProviderModel(name, api_key="none", base_url="http://127.0.0.1:9")
    warn_of_many_tools(agents, dict.fromkeys(agents, elsewhere), many)
    warn_of_many_tools(agents, dict.fromkeys(agents, ScriptedModel(["x"])), many)
    assert not recwarn.list
    with pytest.warns(PolicyWarning, match=r"agent 'default' may hold 129 tools.*at most 128") as told:
        warn_of_many_tools(agents, chosen, many)
    assert len(told) == 1
