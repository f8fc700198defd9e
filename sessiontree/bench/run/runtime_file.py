"""The file of ``bench run --runtime``: the options of a runtime as TOML, each by its own name.

``memory`` is a table of MemorySettings; ``telemetry`` is true, false, or a table of Telemetry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sessiontree import ConfigError, MemorySettings, Telemetry
from sessiontree.api.runtime.runtime_options import RuntimeOptions
from sessiontree.contracts.settings.given_values import check_options, take_settings
from sessiontree.contracts.values.jsonable import parse_json


def read_runtime(file: Path | None, placement: str | None) -> dict[str, Any]:
    """Return the options of a runtime that a file holds, and a placement that is given besides.

    Args:
        file: The TOML file; None = no options.
        placement: As a JSON object, such as ``{"worker": {"num_cpus": 1}}``; None = that of the file.

    Raises:
        ConfigError: the file or the placement can't be read, or an option is unknown or wrong.
    """
    found = {} if file is None else _read(file)
    if placement is not None:
        try:
            found["placement"] = parse_json(placement)
        except ValueError as error:
            raise ConfigError(
                f"--placement {placement!r} is not JSON: {error}; give an object such as "
                '{"worker": {"num_cpus": 1}}'
            ) from None
    return found


def _read(file: Path) -> dict[str, Any]:
    place = f"--runtime {str(file)!r}"
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{place} can't be read: {reason}") from None
    memory, telemetry = found.get("memory"), found.get("telemetry")
    if isinstance(memory, Mapping):
        found["memory"] = take_settings(lambda: MemorySettings.model_validate(memory), f"{place}: memory")
    if isinstance(telemetry, Mapping):
        if set(telemetry) - {"content"}:
            raise ConfigError(f"{place}: telemetry takes true, false, or a table with content = true")
        found["telemetry"] = Telemetry(**telemetry)
    try:
        check_options(found, RuntimeOptions, "the runtime")
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    return found
