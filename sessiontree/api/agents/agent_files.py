"""Agents in Markdown files: front matter holds the settings, the body is the prompt."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from sessiontree.api.agents.agents import AgentSpec
from sessiontree.api.agents.front_matter import (
    FrontMatter,
    Malformed,
    RefusedFile,
    list_entries,
    read_front_matter,
)

SUFFIX: Final = ".md"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LISTS: Final = ("tools", "delegates", "skills")
"""Members that may be written as one text with commas."""


def read_agents(folder: Path) -> tuple[dict[str, AgentSpec], tuple[RefusedFile, ...]]:
    """Return the agents of a folder by name, and the files that are not valid; a missing folder has none."""
    found: dict[str, AgentSpec] = {}
    paths, refused = list_entries(folder)
    for path in paths:
        if path.suffix != SUFFIX or path.name.startswith("."):
            continue
        try:
            name, spec = parse_agent(read_front_matter(path))
            if name in found:
                raise Malformed(RefusedFile(path, f"agent {name!r} is also in {found[name].source!r}"))
        except Malformed as error:
            refused.append(error.refused)
        else:
            found[name] = spec
    return found, tuple(refused)


def parse_agent(file: FrontMatter) -> tuple[str, AgentSpec]:
    """Return an agent's name and the agent.

    Raises:
        Malformed: a member is unknown or wrong.
    """
    name = file.text("name", file.path.stem)
    if not _NAME.fullmatch(name):
        raise file.build_error(f"name {name!r} may have 64 letters, digits, '.', '_' and '-'", "name")
    for member in ("config", "source", "prompt", "agent_id"):
        if member in file.members:
            instead = "write it below the front matter" if member == "prompt" else "leave it out"
            raise file.build_error(f"{member} can't be given here; {instead}", member)
    if not file.body:
        raise file.build_error("it has no prompt; write it below the front matter")
    given: dict[str, Any] = {key: value for key, value in file.members.items() if key != "name"}
    given |= {member: _parse_names(file, member) for member in _LISTS if member in given}
    given |= {"prompt": file.body, "source": os.path.realpath(file.path)}
    try:
        return name, AgentSpec.model_validate(given)
    except ValidationError as error:
        raise file.faults(error) from None


def _parse_names(file: FrontMatter, member: str) -> Any:
    """Return a list of names, also of one text with commas."""
    value = file.members[member]
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value
