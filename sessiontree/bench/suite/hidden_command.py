"""A scorer that runs a command on what an attempt has left, with files that its agent never saw.

The workspace is copied to a place that no session of the attempt can reach. The hidden files are put into the
copy, and ``exec`` runs the command there: confined and bounded as an agent's commands are, in a tree of its
own whose journal holds the call.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final

from sessiontree import (
    ConfigError,
    FunctionModel,
    Limits,
    ModelRequest,
    SessionTree,
    SessionTreeError,
    script_call,
)
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.bench.suite.scorers import SHOWN_CHARS
from sessiontree.bench.suite.suite import Attempt, Score, Scorer
from sessiontree.workspace.removal import remove_tree

MAX_BYTES: Final = 4 * 2**30
"""Most bytes of files that are copied for scoring."""
_MARGIN_S: Final = 30.0
"""What a call may take beyond its command: its start, and the end of all that it started."""


def command(
    line: str,
    *,
    files: str | Path | Mapping[str, str | Path] | None = None,
    timeout_s: float = 60.0,
    name: str = "command",
) -> Scorer:
    """Return a scorer that passes if a command exits with 0 in a copy of the workspace.

    Links in the workspace are kept as they are; where a hidden file goes, they are replaced. What the command
    leaves is removed with the copy. A command that could not be run or confined raises: nothing is decided
    then.

    Args:
        line: The command line, such as ``python -m pytest -q hidden``.
        files: The hidden files: a directory whose content goes to the top of the copy; or files and
            directories by their path in the copy. Relative ones begin at the working directory; the suite's
            folder is safe: ``Path(__file__).parent / "hidden"``.
        timeout_s: Time limit of the command, in seconds; a command over it does not pass.
        name: Name of the score: two commands of one suite need different ones.

    Raises:
        ConfigError: the files are not there, a path leads out of the copy, or the time is not above 0.
    """
    if not line.strip() or not timeout_s > 0:
        raise ConfigError(f"{name} takes a command line and a time above 0 s, not {line!r} and {timeout_s!r}")
    hidden = _map_hidden_files(files, name)

    async def score(attempt: Attempt[Any]) -> Score:
        place = attempt.run_dir / "scoring" / secrets.token_hex(12)
        try:
            await asyncio.to_thread(_make_copy, attempt.workspace, place, hidden)
            said, details = await _run_command(attempt, place, line, timeout_s, name)
        finally:
            await asyncio.to_thread(remove_tree, place)
        return Score(
            float(details.get("exit_code") == 0 and details.get("reason") == "exited"),
            answer=str(details.get("exit_code")),
            explanation=said[-SHOWN_CHARS:],
            metadata={each: details.get(each) for each in ("exit_code", "signal", "reason", "limit")},
        )

    score.__name__ = score.__qualname__ = name
    return score


def _map_hidden_files(
    files: str | Path | Mapping[str, str | Path] | None, name: str
) -> dict[PurePosixPath, Path]:
    """Return what goes where in the copy.

    Raises:
        ConfigError: a file is not there, or a path leads out.
    """
    if files is None:
        return {}
    if isinstance(files, Mapping):
        given = {PurePosixPath(to): make_absolute(place, "files") for to, place in files.items()}
    else:
        folder = make_absolute(files, "files")
        if not folder.is_dir():
            raise ConfigError(f"{name}: the hidden files {str(folder)!r} are no directory; name one")
        given = {PurePosixPath(each.name): each for each in folder.iterdir()}
    for to, place in given.items():
        if to.is_absolute() or ".." in to.parts or not to.parts:
            raise ConfigError(f"{name}: {str(to)!r} leads out of the workspace; give a path beneath it")
        if not place.exists():
            raise ConfigError(f"{name}: the hidden file {str(place)!r} does not exist")
    return given


def _make_copy(workspace: Path, place: Path, hidden: Mapping[PurePosixPath, Path]) -> None:
    place.parent.mkdir(exist_ok=True)
    try:
        left = _Room(MAX_BYTES)
        shutil.copytree(
            workspace, place, symlinks=True, ignore=_ignore_special_files, copy_function=left.copy
        )
        for to, source in hidden.items():
            target = place / to
            _clear_way(place, to)
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copy2(source, target)
    except (OSError, shutil.Error) as error:
        raise ConfigError(
            f"workspace {workspace.name!r} can't be copied for its test: {error}; look at the disk"
        ) from error


class _Room:
    """How many bytes may still be copied."""

    def __init__(self, most: int) -> None:
        self._left = most

    def copy(self, source: str, target: str) -> str:
        """Copy a file that is one at this moment; whatever replaced it is left out."""
        # Code of the attempt may still run, and replace the file by a link or a pipe since it was listed.
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as given:  # noqa: PTH123 - of a descriptor
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return target
            self._left -= status.st_size
            if self._left < 0:
                raise OSError(f"its files have more than {MAX_BYTES:,} bytes")
            with open(target, "xb") as made:  # noqa: PTH123 - as above
                shutil.copyfileobj(given, made)
        os.chmod(target, stat.S_IMODE(status.st_mode) & 0o777 | 0o600)  # noqa: PTH101 - text
        return target


def _ignore_special_files(folder: str, names: list[str]) -> set[str]:
    """Return the names that are neither files, directories nor links: nothing can be copied of them."""
    left = set()
    for name in names:
        try:
            kind = os.lstat(os.path.join(folder, name)).st_mode  # noqa: PTH118 - text
        except OSError:
            left.add(name)
            continue
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind)):
            left.add(name)
    return left


def _clear_way(place: Path, to: PurePosixPath) -> None:
    """Make the directories of a hidden file, in place of links and files, and remove what has its name."""
    here = place
    for part in to.parts[:-1]:
        here /= part
        # An agent may have left a link here, through which the hidden files would be written elsewhere.
        if here.is_symlink() or not here.is_dir():
            here.unlink(missing_ok=True)
            here.mkdir()
    remove_tree(place / to)


async def _run_command(
    attempt: Attempt[Any], place: Path, line: str, timeout_s: float, name: str
) -> tuple[str, Mapping[str, Any]]:
    """Run the command; return what the call said and its details.

    Raises:
        SessionTreeError: it could not be run.
    """
    runs_once = FunctionModel(partial(_call_once, line, timeout_s), name="hidden command")
    limits = Limits(tool_timeout_s=timeout_s + _MARGIN_S)
    async with SessionTree(
        place,
        model=runs_once,
        runtime=attempt.runtime,
        channel=None,
        agents_md=None,
        approvals="auto",
        limits=limits,
        purpose=f"{name} of {attempt.suite}: {attempt.sample.id}"[:200],
    ) as tree:
        said = str(await tree.main.send("Run the hidden command."))
        await tree.finish("scored")
        details = [each async for record in tree.events() for each in _find_details(record.to_json_parts())]
    if not details:
        raise SessionTreeError(
            f"the command of {name!r} could not be run for sample {attempt.sample.id!r}: {said[:400]}"
        )
    return said, details[-1]


def _call_once(line: str, timeout_s: float, request: ModelRequest) -> Any:
    """Call ``exec``, then repeat its result; a function of a module, so that other processes find it."""
    if request.turn == 1:
        return script_call("exec", command=line, timeout=timeout_s)
    return request.messages[-1].text or "(no output)"


def _find_details(parts: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the details of ended commands in a journaled fact."""
    waiting = list(parts)
    while waiting:
        found = waiting.pop()
        if isinstance(found, Mapping):
            details = found.get("details")
            if isinstance(details, Mapping) and "exit_code" in details:
                yield details
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found
