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
from sessiontree.api.agents.owned_files import check_owned
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.contracts.errors import ConfigError

SUFFIX: Final = ".md"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LISTS: Final = ("tools", "delegates", "skills")
"""Members that may be written as one text with commas."""


def load_agents(folder: str | Path) -> dict[str, AgentSpec]:
    """Return the agents of a folder by name, for ``SessionTree(agents=…)``.

    Each ``*.md`` file is an agent. Its front matter has the members of :class:`AgentSpec`; ``name`` is the
    file's name by default, ``tools``, ``delegates`` and ``skills`` may be one text with commas. The body is
    the prompt.

    Raises:
        ConfigError: the folder can't be read, others may write it, or a file is not valid; names each file,
            line and reason.
    """
    place = make_absolute(folder, "folder")
    if not place.is_dir():
        raise ConfigError(f"agents: {str(place)!r} is not a directory; give the one that holds their files")
    check_owned(place, "agents")
    agents, refused = read_agents(place)
    if refused:
        raise ConfigError(f"agents can't be used: {'; '.join(map(str, refused))}")
    return agents


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
