"""The bridge of files between a workspace and a container that can't mount it.

Between commands the workspace is the truth. Before a command, what changed there is copied in; after it, what
the command changed is copied out, through the session's own writer, so that no path, link or protected place
is reached that its file tools could not reach. Only regular files pass; a new one gets no mode bits.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import PurePosixPath
from typing import Final

from sessiontree.contracts.errors import ConfinementUnavailable, ExecutionError, ToolError
from sessiontree.contracts.handles.ports import Reader, Writer
from sessiontree.sandbox.containers.engine import COPY_S, EngineAnswer, ask_engine

MAX_BYTES: Final = 512 * 1024 * 1024
"""The largest workspace that is copied."""
REMOVER: Final = 'rm -f -- "$@"'
PATHS_AT_A_TIME: Final = 1000
_NS: Final = 1_000_000_000
_State = tuple[int, int]
"""Size and time of change, in whole seconds: an archive keeps no more."""


class FileBridge:
    """Copies files between one workspace and one container.

    Args:
        program: The engine's program.
        name: The container.
        workdir: Where the container has the workspace.
        reader: Reads the workspace.
        writer: Changes it; None = it is read-only.
    """

    def __init__(self, program: str, name: str, workdir: str, reader: Reader, writer: Writer | None) -> None:
        self.name = name
        self._program = program
        self._workdir = workdir
        self._reader = reader
        self._writer = writer
        self._known: dict[str, _State] | None = None
        """What both sides had after the last copy; None = the container was not looked at."""

    async def copy_in(self) -> None:
        """Make the container's files those of the workspace.

        Raises:
            ConfinementUnavailable: the container does not answer.
            ExecutionError: the workspace is too large.
        """
        here = await asyncio.to_thread(self._look)
        known = self._known
        if known is None:
            known = dict.fromkeys(
                await asyncio.to_thread(_read_states, await self._fetch_archive()), (-1, -1)
            )
        changed = [path for path, state in here.items() if known.get(path) != state]
        gone = sorted(known.keys() - here.keys())
        for start in range(0, len(gone), PATHS_AT_A_TIME):
            some = gone[start : start + PATHS_AT_A_TIME]
            words = ["exec", "--workdir", self._workdir, self.name, "/bin/sh", "-c", REMOVER, "sh", *some]
            await self._ask(words)
        if changed:
            data = await asyncio.to_thread(self._pack, changed, here)
            await self._ask(["cp", "-", f"{self.name}:{self._workdir}"], data)
        self._known = here

    async def copy_out(self) -> tuple[str, ...]:
        """Bring what a command changed into the workspace; return paths that may not be changed.

        Raises:
            ConfinementUnavailable: the container does not answer.
            ExecutionError: the container's files are too large.
        """
        if self._writer is None or self._known is None:
            return ()
        refused = await asyncio.to_thread(self._take, await self._fetch_archive(), self._writer, self._known)
        # After a refusal both sides differ in a way that no list holds; the next command compares everything.
        self._known = None if refused else await asyncio.to_thread(self._look)
        return refused

    async def _fetch_archive(self) -> bytes:
        return (await self._ask(["cp", f"{self.name}:{self._workdir}/.", "-"])).output

    async def _ask(self, words: list[str], data: bytes = b"") -> EngineAnswer:
        answer = await ask_engine(self._program, words, COPY_S, data, most_bytes=MAX_BYTES)
        if answer.is_cut:
            raise _make_size_error(f"more than {MAX_BYTES}")
        if answer.code:
            raise ConfinementUnavailable(
                f"files can't be copied between workspace and container: {answer.said}",
                "see whether the container still exists",
                may_have_run=True,
            )
        return answer

    def _look(self) -> dict[str, _State]:
        entries = [entry for entry in self._reader.walk() if entry.type == "file"]
        size = sum(entry.size for entry in entries)
        if size > MAX_BYTES:
            raise _make_size_error(str(size))
        return {entry.path: (entry.size, entry.mtime_ns // _NS) for entry in entries}

    def _pack(self, paths: list[str], states: dict[str, _State]) -> bytes:
        packed, left = io.BytesIO(), MAX_BYTES
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path in paths:
                with self._reader.open(path) as file:
                    data = file.read(left + 1)
                # It may have grown since the workspace was looked at.
                if len(data) > left:
                    raise _make_size_error(f"more than {MAX_BYTES}")
                left -= len(data)
                member = tarfile.TarInfo(path)
                member.size, member.mtime = len(data), states[path][1]
                archive.addfile(member, io.BytesIO(data))
        return packed.getvalue()

    def _take(self, data: bytes, writer: Writer, known: dict[str, _State]) -> tuple[str, ...]:
        """Write and remove what differs from what was copied in; the archive is a stranger's."""
        refused, found = [], set()
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            # Before the first is written: a sparse member can be far longer than the archive.
            size = sum(member.size for member in archive if member.isreg())
            if size > MAX_BYTES:
                raise _make_size_error(str(size))
            for member in archive:
                path = _resolve_path(member)
                # A link in the archive could lead anywhere when it is written, and a device or a pipe could
                # block.
                if not member.isreg() or path is None:
                    continue
                found.add(path)
                file = archive.extractfile(member)
                if known.get(path) == _read_state(member) or file is None:
                    continue
                try:
                    writer.write(path, file.read())
                except ToolError:
                    refused.append(path)
        for path in sorted(known.keys() - found):
            try:
                writer.remove(path)
            except ToolError:
                refused.append(path)
        return tuple(refused)


def _read_states(data: bytes) -> dict[str, _State]:
    """Return the regular files of an archive."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        named = [(_resolve_path(member), member) for member in archive if member.isreg()]
    return {path: _read_state(member) for path, member in named if path is not None}


def _read_state(member: tarfile.TarInfo) -> _State:
    return member.size, int(member.mtime)


def _resolve_path(member: tarfile.TarInfo) -> str | None:
    """Return where a member belongs, relative to the workspace; None if it does not belong there."""
    path = PurePosixPath(member.name)
    return None if path.is_absolute() or ".." in path.parts else str(path)


def _make_size_error(size: str) -> ExecutionError:
    return ExecutionError(
        f"the workspace has {size} bytes; at most {MAX_BYTES} are copied into a container and back: remove "
        "what is not needed, or use SandboxSpec(files='mount')"
    )
