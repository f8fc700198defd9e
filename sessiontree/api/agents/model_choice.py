"""Choice of the model for each agent: the models that a program gives, and the names agents use."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from pydantic import ValidationError

from sessiontree.api.agents.agents import AgentSpec
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.contracts.settings.settings import find_nearest_name, suggest_names
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.models.fallback_model import FallbackModel
from sessiontree.models.port import Model, StreamingModel, get_model_name, make_image_key, make_summary_key
from sessiontree.models.providers.provider_model import CONSTRAINED, LOCAL, PROVIDERS, ProviderModel
from sessiontree.policy.compiled import PolicyWarning

ModelLike: TypeAlias = Model | str | Sequence[Model | str]
"""A model, its name, or a list of both: if one fails, the next one is asked."""


def _resolve_model(given: ModelLike) -> Model:
    """Return a model; a name refers to a provider's model or to a local one.

    Raises:
        ConfigError: no model has that name, or a requirement is missing; says which.
    """
    if isinstance(given, list | tuple):
        return FallbackModel([cast("StreamingModel", _resolve_model(each)) for each in given])
    if not isinstance(given, str):
        return cast("Model", given)
    if given.startswith(LOCAL):
        from sessiontree.models.local.local_model import LocalModel

        return LocalModel(given)
    return ProviderModel(given)


def _may_be_made(name: str) -> bool:
    """Return whether a name has the prefix of a provider's or a local model."""
    return name.startswith((LOCAL, CONSTRAINED)) or name.partition(":")[0] in PROVIDERS


def resolve_models(
    model: ModelLike, models: Mapping[str, ModelLike] | None, agents: Mapping[str, AgentSpec]
) -> dict[str, Model]:
    """Return the model of each agent, that of its summaries by its summary key, and its image model's.

    An agent names its models by their key in ``models``, by the model's own name, or as ``provider:model``.
    An agent that names none has the tree's model, which then writes the summaries too.

    Raises:
        ConfigError: what was given is not a model, or an agent names one that was not given, or an image
            model that reads only text.
    """
    model = _resolve_model(model)
    _check_model(model, "model")
    if models is not None and not isinstance(models, Mapping):
        raise ConfigError(f"models: give models by name, such as {{'cheap': …}}, not {models!r}")
    named: dict[str, Model] = {get_model_name(model): model}
    given = {name: _resolve_model(each) for name, each in (models or {}).items()}
    for name, each in given.items():
        _check_model(each, f"models[{name!r}]")
        named.setdefault(get_model_name(each), each)
    named |= given
    chosen: dict[str, Model] = {}
    wishes = [(agent, agent, spec.config.model) for agent, spec in agents.items()]
    wishes += [
        (make_summary_key(agent), agent, spec.config.compaction_model)
        for agent, spec in agents.items()
        if spec.config.compaction_model
    ]
    wishes += [
        (make_image_key(agent), agent, spec.config.image_model)
        for agent, spec in agents.items()
        if spec.config.image_model
    ]
    for key, agent, wanted in wishes:
        found = named.get(wanted) if wanted else model
        if found is None and _may_be_made(wanted) and not find_nearest_name(wanted, named):
            found = named[wanted] = _resolve_model(wanted)  # not a typing error in the name of a given model
        if found is None:
            raise ConfigError(
                f"agent {agent!r}: no model is called {wanted!r}; {suggest_names(wanted, named)} "
                f"(a tree is given more by models={{{wanted!r}: …}})"
            )
        if key == make_image_key(agent) and getattr(found, "reads_images", True) is False:
            raise ConfigError(f"agent {agent!r}: image_model {wanted!r} reads only text; name one that sees")
        if key != make_summary_key(agent) or found is not chosen[agent]:
            chosen[key] = found
    return chosen


def add_models(agents: Mapping[str, AgentSpec], chosen: Mapping[str, Model]) -> dict[str, AgentSpec]:
    """Return agents with the names of their models and, if the models report them, context size and prices.

    Raises:
        ConfigError: a model's context is not a number of tokens.
    """
    prices = {id(model): _get_price(model) for model in chosen.values()}
    fitted: dict[str, AgentConfig] = {}
    for name, spec in agents.items():
        writer, seer = chosen.get(make_summary_key(name)), chosen.get(make_image_key(name))
        config = _fit_to_model(spec.config, chosen[name])
        changed: dict[str, Any] = {"compaction_model": "" if writer is None else get_model_name(writer)}
        changed["image_model"] = "" if seer is None else get_model_name(seer)
        if config.model_price is None:
            changed["model_price"] = prices[id(chosen[name])]
        if config.compaction_price is None and writer is not None:
            changed["compaction_price"] = prices[id(writer)]
        if config.image_price is None and seer is not None:
            changed["image_price"] = prices[id(seer)]
        fitted[name] = config.model_copy(update=changed)
    return {name: spec.model_copy(update={"config": fitted[name]}) for name, spec in agents.items()}


def warn_of_many_tools(
    agents: Mapping[str, AgentSpec], chosen: Mapping[str, Model], tools: Collection[str]
) -> None:
    """Warn of agents that may hold more tools than their model's provider takes in one request.

    Args:
        agents: A tree's agents.
        chosen: The model of each agent.
        tools: Names of the tree's tools.
    """
    for name, spec in agents.items():
        most = _get_tool_limit(chosen[name])
        count = len(tools if spec.tools is None else spec.tools)
        if most is not None and count > most:
            text = (
                f"agent {name!r} may hold {count} tools, and model {get_model_name(chosen[name])!r} takes at "
                f"most {most} in one request; name the tools it needs in AgentSpec(tools=…)"
            )
            warnings.warn(PolicyWarning(text), stacklevel=3)  # the line that makes the tree


def _get_tool_limit(model: Model) -> int | None:
    """Return how many tools a model takes; None = no limit is known, as for another server."""
    if not isinstance(model, ProviderModel) or model.is_constrained or not model.is_priced:
        return None
    return model.provider.most_tools


def check_prices(agents: Iterable[AgentSpec]) -> None:
    """Refuse agents of which a model has no known price, because a budget in USD could not be kept.

    Raises:
        ConfigError: names the model.
    """
    for spec in agents:
        _check_prices(spec.config.model, spec.config.model_price)
        _check_prices(spec.config.compaction_model, spec.config.compaction_price)
        _check_prices(spec.config.image_model, spec.config.image_price)


def _get_price(model: Model) -> ModelPrice | Literal["unknown"] | None:
    highest = getattr(model, "highest_price", None)
    return None if highest is None else highest() or "unknown"


def _check_prices(model: str, price: ModelPrice | Literal["unknown"] | None) -> None:
    if price == "unknown":
        raise ConfigError(
            f"budget: cost_usd can't be kept, because the price of model {model!r} is not known; "
            "give ProviderModel(price=ModelPrice(…)), or a budget in tokens"
        )


def _fit_to_model(config: AgentConfig, model: Model) -> AgentConfig:
    named = get_model_name(model)
    tokens = getattr(model, "context_tokens", None)
    if tokens is None or config.context_tokens is not None:
        return config.model_copy(update={"model": named})
    given = {name: getattr(config, name) for name in config.model_fields_set}
    try:
        return AgentConfig.model_validate({**given, "model": named, "context_tokens": tokens})
    except ValidationError as error:
        raise ConfigError(
            f"model {named!r}: context_tokens is {tokens!r}; give a whole number above 0"
        ) from error


def _check_model(model: object, place: str) -> None:
    if isinstance(model, type):
        raise ConfigError(f"{place}: {model.__name__} is a class; give an instance of it")
    if not any(callable(getattr(model, way, None)) for way in ("reply", "stream", "complete")):
        raise ConfigError(f"{place}: {_suggest_model(model)}")


def _suggest_model(model: object) -> str:
    if callable(model):
        wrapped = "FunctionModel"
        if inspect.iscoroutinefunction(model):
            wrapped = "AsyncFunctionModel"
        elif inspect.isasyncgenfunction(model):
            wrapped = "StreamFunctionModel"
        return f"{model!r} is a function; wrap it: {wrapped}(f)"
    ways = "reply (in-process), complete and stream (remote)"
    return f"{model!r} is not a model: it has none of the methods {ways}"
