"""What the commands that open a tree give it: the owner's configuration and the options of the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sessiontree import AgentSpec, App, Budget, ConfigError, Configuration, Limits
from sessiontree.api.agents.approval_modes import DEFAULT_MODE, MODES, fix_system_answer
from sessiontree.api.agents.model_choice import resolve_models
from sessiontree.api.options.app import take_app
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.recorded.approvals import ApprovalMode
from sessiontree.contracts.settings.settings import suggest_nearest
from sessiontree.models.port import get_model_name
from sessiontree.models.program_model import NoModel
from sessiontree.models.providers.provider_model import LOCAL

LIMITS = Limits(
    approval_patience_s=None,  # a person is asked: the model waits for the answer
    branch_ttl_s=None,  # an interrupted tree may be resumed days later
)


def load_configuration(config: Path | None, workspace: Path) -> Configuration:
    """Return the owner's configuration; say on stderr what of a workspace is ignored.

    Raises:
        ConfigError: it can't be used.
    """
    configured = Configuration.load(config, workspace=workspace)
    if configured.notice:
        sys.stderr.write(f"sessiontree: {make_visible(configured.notice)}\n")
    return configured


def build_tree_options(
    configured: Configuration,
    *,
    model: str | None,
    agent: str | None,
    approve: str | None,
    max_cost: float | None = None,
    has_person: bool | None = None,
    needs_model: bool = True,
) -> dict[str, Any]:
    """Return the arguments of a new tree.

    Where no mode is named and nobody can be asked, Elevated calls are refused.

    Args:
        configured: The owner's configuration.
        model: The model that an option names.
        agent: The agent that an option names.
        approve: The mode that an option names.
        max_cost: Most US dollars that the tree may spend.
        has_person: Whether a person can be asked; None = where the input is a terminal.
        needs_model: Whether a model must be named; a tree that runs a program needs none.

    Raises:
        ConfigError: an option is wrong, or the model or the agent is unknown.
    """
    named = parse_mode(approve) or configured.approvals
    if has_person is None:
        has_person = sys.stdin is not None and sys.stdin.isatty()
    options = configured.tree_options(
        model=model,
        agent=agent,
        approvals=named or (DEFAULT_MODE if has_person else "never"),
        limits=LIMITS,
        budget=None if max_cost is None else Budget(cost_usd=max_cost),
    )
    if not needs_model:
        options.setdefault("model", NoModel())
    check_models(options)
    if named is None:
        options["policy"] = fix_system_answer(options["policy"])
    return options


def parse_mode(approve: str | None) -> ApprovalMode | None:
    """Return the mode that the option ``--approve`` names.

    Raises:
        ConfigError: it names none.
    """
    for mode in MODES:
        if approve == mode:
            return mode
    if approve is not None:
        raise ConfigError(
            f"--approve {approve!r} is not one of {', '.join(MODES)}{suggest_nearest(approve, MODES)}"
        )
    return None


def spare_tools(options: dict[str, Any]) -> None:
    """Take all tools from agents of local models for which none are named, and say so on stderr.

    So small a model calls whatever it is shown, and starts session after session.

    Args:
        options: The arguments of a new tree; changed.
    """
    agents: dict[str, AgentSpec] = {options["agent"]: AgentSpec(), **options["agents"]}
    bare = {name: spec for name, spec in agents.items() if spec.tools is None}
    local = {
        name: spec.model_copy(update={"tools": ()})
        for name, spec in bare.items()
        if _name_model(spec.config.model or options["model"], options["models"]).startswith(LOCAL)
    }
    if local:
        options["agents"] = {**agents, **local}
        sys.stderr.write(
            "sessiontree: a local model gets no tools; give it some with --tools of run, such as "
            "--tools read,grep, or in an agent of the configuration\n"
        )


def _name_model(model: object, models: Mapping[str, object]) -> str:
    return get_model_name(models.get(model, model) if isinstance(model, str) else model)


def find_app(configured: Configuration, was: str, model: str | None) -> App:
    """Return what a resumed tree is given again; its journal has the rest.

    Args:
        configured: The owner's configuration.
        was: The name of the model that the tree had.
        model: The model that an option names.

    Raises:
        ConfigError: the model is unknown.
    """
    if model is None and was == NoModel.name:
        return take_app(None, {**configured.tree_options(), "model": NoModel()})
    options = configured.tree_options(model=configured.model_called(was) if model is None else model)
    check_models(options)
    return take_app(None, options)


def check_models(options: Mapping[str, Any]) -> None:
    """Check the models among the arguments of a tree.

    Raises:
        ConfigError: no model is named, it is unknown, or its extra or its key is missing.
    """
    if "model" not in options:
        raise ConfigError(
            "name a model: --model provider:model, such as openai:gpt-5, or --model local:smollm2, which "
            "needs no key; sessiontree models lists the providers"
        )
    try:
        resolve_models(options["model"], options["models"], options["agents"])
    except ConfigError as error:
        raise ConfigError(f"{error}; --model local:smollm2 needs no key") from error


def check_workspace(workspace: Path | None) -> Path:
    """Return a workspace's path; whether it is a directory is the tree's to say.

    Raises:
        ConfigError: its files can't be listed.
    """
    root = make_absolute(workspace or Path(), "workspace")
    if root.is_dir() and not os.access(root, os.R_OK | os.X_OK):
        raise ConfigError(f"workspace {str(root)!r} can't be listed: permission denied; give another one")
    return root
