"""The container of one attempt, as its suite and its sample give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from sessiontree import App, ConfigError, SandboxSpec
from sessiontree.bench.suite.plain_values import format_value
from sessiontree.bench.suite.suite import Attempt, SuiteDefinition

IMAGE: Final = "image"
"""The member of a sample's metadata that names its image."""


def add_sandbox(options: Mapping[str, Any], suite: SuiteDefinition, attempt: Attempt[Any]) -> dict[str, Any]:
    """Return the arguments of an attempt's tree with the suite's container, unless they name one.

    Raises:
        ConfigError: the suite's function returned something else, or the image's name is not valid.
    """
    sandbox, app = _choose_sandbox(suite, attempt), options.get("app")
    if sandbox is None:
        return dict(options)
    if isinstance(app, App):
        return {**options, "app": app if app.sandbox is not None else replace(app, sandbox=sandbox)}
    return {**options, "sandbox": options.get("sandbox") or sandbox}


def _choose_sandbox(suite: SuiteDefinition, attempt: Attempt[Any]) -> SandboxSpec | None:
    given = suite.sandbox
    if given is None:
        return None
    if callable(given):
        made = given(attempt)
        if made is not None and not isinstance(made, SandboxSpec):
            raise ConfigError(f"sandbox returned {format_value(made)}; return a SandboxSpec, or None")
        return made
    image = attempt.sample.metadata.get(IMAGE)
    if image is None:
        return given
    try:
        return SandboxSpec.model_validate({**given.model_dump(exclude_unset=True), IMAGE: image})
    except ValueError as error:
        raise ConfigError(
            f"sample {attempt.sample.id!r}: metadata[{IMAGE!r}] is {format_value(image)}, and that is "
            "not the "
            "name of an image"
        ) from error
