"""Saved programs of a tree's owner: Python files with front matter in their docstring.

The docstring describes the program. Front matter between two lines ``---`` at its end names what it needs; it
is there, and not in comments, because a docstring is a part of the syntax tree and survives formatters.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from sessiontree.api.agents.front_matter import Malformed, RefusedFile, list_entries, parse_members, read_text
from sessiontree.api.agents.owned_files import check_outside, check_owned
from sessiontree.api.options.app import ProgramsLike
from sessiontree.api.programs.program_signature import UnfitProgram, build_parameters_schema, parse_program
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.programs import SAVED_NAME
from sessiontree.contracts.settings.settings import Budget, StrictSettings, describe_faults
from sessiontree.contracts.tools.program_tool import SavedProgram, SavedText
from sessiontree.contracts.values.quick_dataclass import dataclass

SUFFIX: Final = ".py"
MAX_DESCRIPTION_CHARS: Final = 1_024
MAX_CODE_CHARS: Final = 100_000
_FENCE: Final = "---"
_Name = Annotated[str, Field(min_length=1, max_length=64)]


class SavedProgramWarning(UserWarning):
    """A saved program can't be used; the tree goes on without it."""


class _Needs(StrictSettings):
    """Front matter of a saved program."""

    tools: tuple[_Name, ...] = ()
    agents: tuple[_Name, ...] = ()
    budget: Budget | None = None
    timeout_s: Annotated[float, Field(gt=0, le=30 * 24 * 3600)] | None = None


@dataclass(frozen=True, slots=True)
class _Docstring:
    """The two parts of a docstring."""

    description: str
    front_matter: str
    line: int
    """Line of the file where the front matter begins."""


def read_programs(
    folder: Path, *, workspace: Path | None = None
) -> tuple[dict[str, SavedText], tuple[RefusedFile, ...]]:
    """Return the saved programs of a folder by name, and the files that are not valid.

    A missing folder has none.

    Args:
        folder: Each file ``*.py`` in it is a program.
        workspace: Root of the tree's workspace; what is in it is not the owner's.
    """
    found: dict[str, SavedText] = {}
    paths, refused = list_entries(folder)
    for path in paths:
        if path.suffix != SUFFIX or path.name.startswith((".", "_")):
            continue
        try:
            _check_place(path, workspace)
            saved = load_program(path)
        except Malformed as error:
            refused.append(error.refused)
        else:
            found[saved.name] = saved
    return found, tuple(refused)


def _check_place(path: Path, workspace: Path | None) -> None:
    try:
        check_outside(path, "saved program", workspace)
    except ConfigError as error:
        raise Malformed(RefusedFile(path, str(error))) from None


def load_program(path: Path) -> SavedText:
    """Return the saved program of a file.

    Raises:
        Malformed: it can't be read, others may write it, or it is not valid; names the line.
    """
    return parse_saved_text(path, read_text(path))


def parse_saved_text(path: Path, text: str) -> SavedText:
    """Return the saved program that a text would be as the content of a file.

    Raises:
        Malformed: it is not valid; names the line.
    """
    name = path.stem
    if not SAVED_NAME.fullmatch(name) or keyword.iskeyword(name):
        raise Malformed(
            RefusedFile(path, f"name {name!r} may have 64 lower-case letters, digits and '_', a letter first")
        )
    if len(text) > MAX_CODE_CHARS:
        reason = f"it has {len(text):,} characters, {MAX_CODE_CHARS:,} are the most"
        raise Malformed(RefusedFile(path, reason))
    try:
        module = parse_program(text)
        parameters = build_parameters_schema(module)
    except UnfitProgram as error:
        raise Malformed(RefusedFile(path, error.reason, error.line)) from None
    said = _parse_docstring(path, module)
    needs = _needs_in(path, said)
    return SavedText(
        name,
        said.description,
        text,
        parameters,
        needs.tools,
        needs.agents,
        needs.budget,
        needs.timeout_s,
        os.path.realpath(path),
    )


def _parse_docstring(path: Path, module: ast.Module) -> _Docstring:
    written = ast.get_docstring(module, clean=False)
    if written is None:
        raise Malformed(RefusedFile(path, "it has no docstring; describe it at the top of the file", 1))
    lines = inspect.cleandoc(written).splitlines()
    fences = [at for at, line in enumerate(lines) if line.rstrip() == _FENCE]
    blank = len(written) - len(written.lstrip())
    begin = module.body[0].lineno + written[:blank].count("\n")
    if fences and (len(fences) != 2 or any(line.strip() for line in lines[fences[1] + 1 :])):
        reason = f"its front matter must be the docstring's end, between two lines {_FENCE}"
        raise Malformed(RefusedFile(path, reason, begin))
    first, last = fences or (len(lines), len(lines))
    description = " ".join(" ".join(lines[:first]).split())
    if not description or len(description) > MAX_DESCRIPTION_CHARS or not description.isprintable():
        raise Malformed(
            RefusedFile(
                path,
                f"its description has {len(description)} characters; write 1 to {MAX_DESCRIPTION_CHARS} "
                "printable ones",
                begin,
            )
        )
    return _Docstring(description, "\n".join(lines[first + 1 : last]), begin + first + 1)


def _needs_in(path: Path, said: _Docstring) -> _Needs:
    if not said.front_matter.strip():
        return _Needs()
    members, lines = parse_members(path, said.front_matter, said.line)
    given: dict[str, Any] = dict(members)
    for name in ("tools", "agents"):
        if isinstance(given.get(name), str):
            given[name] = [part.strip() for part in given[name].split(",") if part.strip()]
    try:
        return _Needs.model_validate(given)
    except ValidationError as error:
        place = [str(part) for part in error.errors(include_url=False)[0]["loc"]]
        line = next((lines[part] for part in place if part in lines), said.line)
        raise Malformed(RefusedFile(path, describe_faults(error), line)) from None


def load_programs(given: ProgramsLike, root: Path) -> tuple[SavedProgram, ...]:
    """Return the saved programs of a tree as tools, sorted by name; warn of those that can't be used.

    Args:
        given: A folder of programs, or several.
        root: Root of the tree's workspace.

    Raises:
        ConfigError: a folder is missing, others may write it, or two programs have one name.
    """
    if given is not None and not isinstance(given, str | Path | Sequence):
        raise ConfigError(f"programs: give the folder that holds them, or a list of folders, not {given!r}")
    found: dict[str, SavedText] = {}
    for each in [given] if isinstance(given, str | Path) else given or ():
        folder = make_absolute(each, "programs")
        if not folder.is_dir():
            raise ConfigError(f"programs: {str(folder)!r} is not a directory; give one with files *.py")
        check_owned(folder, "programs")
        programs, bad = read_programs(folder, workspace=root)
        for name in programs.keys() & found.keys():
            raise ConfigError(
                f"saved program {name!r} is in {found[name].path!r} and in {programs[name].path!r}; keep one"
            )
        found |= programs
        for file in bad:
            warning = SavedProgramWarning(f"saved program left out: {file}")
            warnings.warn(warning, stacklevel=4)  # the line that makes the tree
    return tuple(SavedProgram(found[name]) for name in sorted(found))
