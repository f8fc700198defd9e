"""The command ``sessiontree models``: providers, what is installed, keys, and the configured models."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from sessiontree import ConfigError, Configuration, ProviderModel
from sessiontree.api.agents.model_choice import resolve_models
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.models.providers.provider_model import PROVIDERS, Provider
from sessiontree.version import explain_installation

LOCAL_MODEL = "local:smollm2"
_NOWHERE = "http://localhost"


@dataclass(frozen=True, slots=True)
class ModelRow:
    """What there is for the models of one provider."""

    models: str
    """How their names are written."""
    extra: str
    is_installed: bool
    key_variables: tuple[str, ...]
    needs_key: bool
    has_key: bool
    """Whether one of the variables is set."""
    url_variable: str
    """``""`` = it reads no variable."""


@dataclass(frozen=True, slots=True)
class ConfiguredRow:
    """A model of the configuration."""

    name: str
    model: str
    address: str
    """``""`` = the provider's own."""
    key: str
    """Its key's variable or file; ``""`` = as the provider documents."""
    problem: str
    """Why it can't be used; ``""`` = it can."""
    is_default: bool


def models(screen: RichScreen, *, config: Path | None, as_json: bool) -> int:
    """List the providers of models and the configured models, and return the exit code.

    With ``as_json`` one object is printed: ``models``, each of the members of :class:`ModelRow`, and
    ``configured``, each of the members of :class:`ConfiguredRow`; of a key it says only where it is.

    Args:
        screen: Where it is shown.
        config: The configuration's file; None = the owner's own.
        as_json: Whether a program reads it.

    Raises:
        ConfigError: the configuration can't be used.
    """
    configured = _list_configured(Configuration.load(config))
    rows = [_build_row(provider) for provider in PROVIDERS.values()]
    rows.append(ModelRow(LOCAL_MODEL, "openai", _can_be_made(LOCAL_MODEL), (), False, False, ""))
    if as_json:
        members = {"models": [asdict(row) for row in rows], "configured": [asdict(row) for row in configured]}
        screen.raw(dump_json(members))
        return 0
    header = ("models", "extra", "installed", "key", "address")
    screen.table(header, [_format_cells(row) for row in rows])
    if configured:
        screen.line("")
        shown = [
            (
                f"{row.name} (default)" if row.is_default else row.name,
                row.model,
                row.address,
                row.key,
                row.problem or "yes",
            )
            for row in configured
        ]
        screen.table(("configured", "model", "address", "key", "usable"), shown)
    screen.line(
        f"a model that needs no key: {LOCAL_MODEL}; to install an extra, {explain_installation('EXTRA')}"
    )
    return 0


def _list_configured(configuration: Configuration) -> list[ConfiguredRow]:
    first = next(iter(configuration.model), None)
    found = []
    for name, entry in configuration.models.items():
        problem = ""
        try:
            configuration.find_model(name)
        except ConfigError as error:
            problem = str(error).rpartition(f"models.{name}: ")[2]
        key = entry.key or entry.key_file or ""
        found.append(ConfiguredRow(name, entry.model, entry.base_url or "", key, problem, name == first))
    return found


def _build_row(provider: Provider) -> ModelRow:
    return ModelRow(
        f"{provider.name}:…",
        provider.extra,
        _is_installed(provider),
        provider.key_variables,
        provider.needs_key,
        any(os.environ.get(name, "").strip() for name in provider.key_variables),
        provider.url_variable,
    )


def _is_installed(provider: Provider) -> bool:
    try:
        ProviderModel(f"{provider.name}:any", api_key="none", base_url=_NOWHERE)
    except ConfigError:
        return False
    return True


def _can_be_made(name: str) -> bool:
    try:
        resolve_models(name, None, {})
    except ConfigError:
        return False
    return True


def _format_cells(row: ModelRow) -> tuple[str, ...]:
    variables = " or ".join(row.key_variables)
    key = f"{variables}: {'set' if row.has_key else 'not set' if row.needs_key else 'not needed'}"
    return (
        row.models,
        row.extra,
        "yes" if row.is_installed else "no",
        key if variables else "not needed",
        row.url_variable,
    )
