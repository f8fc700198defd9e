"""Environment variables of the owner's configuration, such as ``SESSIONTREE_LIMITS__MAX_TURNS``."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict, SettingsError

from sessiontree.api.configuration.configuration_members import FILE_VARIABLE, PREFIX, ConfigurationMembers
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.settings import find_nearest_name

_FORM: Final = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True)


class Variables(ConfigurationMembers, BaseSettings):
    """The members of a configuration as variables; ``__`` separates the levels."""

    model_config = _FORM  # type: ignore[mutable-override]  # it has more members

    model: Annotated[tuple[str, ...], NoDecode] = ()
    """One name: it is not JSON, unlike other lists."""


def read_owner_variables() -> dict[str, Any]:
    """Return the members that variables set, not validated; an empty variable sets none.

    Raises:
        ConfigError: the name of a variable is only similar to a member's, or its JSON is broken.
    """
    members = ConfigurationMembers.model_fields
    for name in os.environ:
        first = name.removeprefix(PREFIX).partition("__")[0].lower()
        if not name.startswith(PREFIX) or name == FILE_VARIABLE or first in members:
            continue
        near = find_nearest_name(first, members)
        if near is not None:
            meant = f"{PREFIX}{near.upper()}"
            raise ConfigError(f"variable {name}: no setting is called that; did you mean {meant}?")
    try:
        return EnvSettingsSource(Variables)()
    except SettingsError as error:
        raise ConfigError(f"variables {PREFIX}…: {error}") from None
