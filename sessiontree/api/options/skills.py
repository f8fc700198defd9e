"""Skills of a tree's owner: folders with a file ``SKILL.md``, whose front matter has name and description."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sessiontree.api.agents.agents import AgentSpec
from sessiontree.api.agents.front_matter import Malformed, RefusedFile, list_entries, read_front_matter
from sessiontree.api.agents.owned_files import check_owned, find_fault
from sessiontree.api.options.app import SkillsLike
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.settings import suggest_names
from sessiontree.contracts.tools.skills import FILE, MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS, PLACE, Skill

_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class SkillWarning(UserWarning):
    """A skill of the owner can't be used; the tree goes on without it."""


def read_skills(
    folder: Path, *, workspace: Path | None = None, hidden: Iterable[Path] = ()
) -> tuple[dict[str, Skill], tuple[RefusedFile, ...]]:
    """Return the skills of a folder by name, and the files that are not valid; a missing folder has none.

    Args:
        folder: Each folder in it with a file ``SKILL.md`` is a skill.
        workspace: Root of the tree's workspace; what is in it is not the owner's.
        hidden: Directories that no session may read.
    """
    found: dict[str, Skill] = {}
    paths, refused = list_entries(folder)
    places = [Path(os.path.realpath(place)) for place in hidden]
    for path in (each / FILE for each in paths):
        if not os.path.lexists(path):
            continue
        try:
            skill = _load_skill(path)
            _check_place(path, Path(skill.folder), workspace, places)
        except Malformed as error:
            refused.append(error.refused)
        else:
            found[skill.name] = skill
    return found, tuple(refused)


def _load_skill(path: Path) -> Skill:
    file = read_front_matter(path)
    name, description = file.text("name"), file.text("description")
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise file.build_error(
            f"name {name!r} may have {MAX_NAME_CHARS} lower-case letters, digits and single hyphens", "name"
        )
    if name != path.parent.name:
        raise file.build_error(f"name {name!r} differs from its folder {path.parent.name!r}", "name")
    if len(description) > MAX_DESCRIPTION_CHARS or not description.isprintable():
        raise file.build_error(
            f"description has {len(description)} characters; it may have {MAX_DESCRIPTION_CHARS} printable "
            "ones",
            "description",
        )
    if not file.body:
        raise file.build_error("it has no instructions; write them below the front matter")
    return Skill(name, description, os.path.realpath(path.parent))


def _check_place(path: Path, folder: Path, workspace: Path | None, hidden: Sequence[Path]) -> None:
    """Refuse a skill that a session could write or could not read."""
    file = Path(os.path.realpath(path))
    if file.parent != folder:
        raise Malformed(RefusedFile(path, f"it is a link to {str(file)!r}, outside its folder"))
    fault = find_fault(folder, folder.stat())
    if fault:
        raise Malformed(RefusedFile(path, f"its folder {fault}"))
    for place in (folder, file):
        if workspace is not None and place.is_relative_to(workspace):
            raise Malformed(RefusedFile(path, "it is in the workspace, where sessions may write"))
    if workspace is not None and workspace.is_relative_to(folder):
        raise Malformed(RefusedFile(path, "its folder contains the workspace, where sessions may write"))
    for place in hidden:
        if folder.is_relative_to(place) or place.is_relative_to(folder):
            raise Malformed(RefusedFile(path, f"its folder and {str(place)!r}, which is hidden, overlap"))


def load_skills(
    given: SkillsLike,
    agents: Mapping[str, AgentSpec],
    without_readers: Collection[str],
    root: Path,
    hidden: Iterable[Path],
) -> dict[str, Skill]:
    """Return the skills of a tree by name; warn of those that can't be used, or that reach nobody.

    Args:
        given: A folder of skills, or several.
        agents: The tree's agents by name, Main's first.
        without_readers: Names of those that hold no tool that reads files.
        root: Root of its workspace.
        hidden: Directories that no session may read.

    Raises:
        ConfigError: a folder is missing, others may write it, two skills have one name, or an agent names an
            unknown skill.
    """
    if given is not None and not isinstance(given, str | Path | Sequence):
        raise ConfigError(f"skills: give the folder that holds them, or a list of folders, not {given!r}")
    folders = [given] if isinstance(given, str | Path) else list(given or ())
    found: dict[str, Skill] = {}
    refused: dict[str, RefusedFile] = {}
    for each in folders:
        folder = make_absolute(each, "skills")
        if not folder.is_dir():
            raise ConfigError(f"skills: {str(folder)!r} is not a directory; give one with folders of skills")
        check_owned(folder, "skills")
        if (folder / FILE).is_file():
            raise ConfigError(f"skills: {str(folder)!r} is a skill; give the folder that holds it")
        skills, bad = read_skills(folder, workspace=root, hidden=hidden)
        for name in skills.keys() & found.keys():
            raise ConfigError(f"skill {name!r} is in {found[name].folder!r} and {skills[name].folder!r}")
        found |= skills
        refused |= {file.path.parent.name: file for file in bad}
    for file in refused.values():
        warnings.warn(SkillWarning(f"skill left out: {file}"), stacklevel=4)  # the line that makes the tree
    _check_named(agents, without_readers, found, refused)
    if found and (root.is_relative_to(PLACE) or root == Path("/")):
        raise ConfigError(f"the workspace {str(root)!r} and skills, which sessions see in {PLACE}, overlap")
    return found


def _check_named(
    agents: Mapping[str, AgentSpec],
    without_readers: Collection[str],
    found: Mapping[str, Skill],
    refused: Mapping[str, RefusedFile],
) -> None:
    main = next(iter(agents.values()), AgentSpec()).skills
    for agent, spec in agents.items():
        if spec.skills and agent in without_readers:
            warnings.warn(
                SkillWarning(
                    f"agent {agent!r} names skills, but holds no tool that reads files, such as read: its "
                    "sessions don't see them; add one to its tools, or leave the skills out"
                ),
                stacklevel=5,  # the line that makes the tree
            )
        for name in spec.skills:
            if name not in found and name not in refused:
                raise ConfigError(
                    f"agent {agent!r}: no skill is named {name!r}; {suggest_names(name, found)}"
                )
            if name not in main:
                warnings.warn(
                    SkillWarning(
                        f"skill {name!r} of agent {agent!r} reaches nobody: a session holds at most the "
                        "skills of its parent, Main first; name it in Main's agent too"
                    ),
                    stacklevel=5,  # as above
                )
