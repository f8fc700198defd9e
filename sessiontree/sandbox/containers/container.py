"""One container: started, kept, and ended with everything in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ConfinementUnavailable, ExecutionError
from sessiontree.contracts.settings.sandbox_spec import SandboxSpec
from sessiontree.sandbox.containers.engine import (
    COPY_S,
    LABEL,
    ask_engine,
    cut_words,
    find_engine_program,
    run_engine,
    run_words,
)

READY: Final = b"ready\n"
END_WITHIN_S: Final = 20.0
"""How long a container may take to end after its input was closed; then it is removed by force."""


class Container:
    """A container that lives as long as this object keeps it, at most as long as this process.

    Args:
        spec: What it is made of.
        name: Its name.
        labels: How it is found again after this process was killed.
        mounts: Directories of this machine, where it sees them, and ``rw`` or ``ro``.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        name: str,
        labels: Mapping[str, str],
        mounts: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        self.spec = spec
        self.name = name
        self._words = run_words(spec, name, labels, mounts)
        self._keeping: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._end = asyncio.Event()
        self.lost = ""
        """Why it ended although nobody ended it; empty = it has not."""

    async def start(self) -> None:
        """Start it, and return when it can run commands.

        Raises:
            ConfinementUnavailable: the engine can't start it; says what the engine said.
        """
        program = find_engine_program(self.spec)
        self._ready = asyncio.get_running_loop().create_future()
        self._keeping = asyncio.create_task(self._keep(program))
        try:
            async with asyncio.timeout(self.spec.start_timeout_s):
                # Shielded, because the time-out would cancel the future that the keeping task still sets.
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.close()
            raise self._make_start_error(f"it was not ready after {self.spec.start_timeout_s:g} s") from None
        except BaseException:
            # A caller that is cancelled while the container starts would otherwise leave it running with
            # nobody to end it.
            await self.close()
            raise

    async def close(self) -> None:
        """End it and everything in it; returns when it is gone, or the engine does not answer."""
        self._end.set()
        if self._keeping is not None:
            await asyncio.wait((self._keeping,))
        if self._ready is not None and self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # whoever waited for it has it

    async def _keep(self, program: str) -> None:
        """Hold the container's input open until it is to end; note if it ends before."""
        ready = self._ready
        assert ready is not None  # noqa: S101 - made by whoever starts this task
        pipe = asyncio.subprocess.PIPE
        try:
            async with run_engine(program, self._words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
                assert process.stdin and process.stdout and process.stderr  # noqa: S101 - pipes, as asked
                # Read all the time: an engine that fills the pipe of its errors would stop there, and never
                # report.
                said = asyncio.create_task(process.stderr.read())
                over = asyncio.create_task(self._wait_until_over(process, ready))
                end = asyncio.create_task(self._end.wait())
                try:
                    await asyncio.wait((over, end), return_when=asyncio.FIRST_COMPLETED)
                    if not self._end.is_set():
                        self._note_end(process.returncode or 0, await said, ready)
                        return
                    # The container's first process ends when its input does, so this is the request to end.
                    process.stdin.close()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(END_WITHIN_S):
                            await over
                finally:
                    for task in (said, over, end):
                        task.cancel()
            # The engine's program has ended; only its answer tells that the container has, too.
            await ask_engine(program, ["rm", "--force", "--volumes", self.name])
        except ConfinementUnavailable as error:
            if not ready.done():
                ready.set_exception(error)

    async def _wait_until_over(
        self, process: asyncio.subprocess.Process, ready: asyncio.Future[None]
    ) -> None:
        """Note when it is ready; return when the engine's program has ended."""
        assert process.stdout is not None  # noqa: S101 - a pipe, as asked
        with contextlib.suppress(ValueError):  # a line that is too long is not the one
            if await process.stdout.readline() == READY and not ready.done():
                ready.set_result(None)
        await process.wait()

    def _note_end(self, code: int, errors: bytes, ready: asyncio.Future[None]) -> None:
        why = cut_words(errors) or f"{self.spec.engine} exited with code {code} and said nothing"
        if ready.done():
            self.lost = why
        else:
            ready.set_exception(self._make_start_error(why))

    def _make_start_error(self, why: str) -> ConfinementUnavailable:
        return ConfinementUnavailable(
            f"{self.spec.engine} can't start a container of the image {self.spec.image!r}: {why}",
            "try the same image with the engine's own command line",
        )


async def remove_containers(spec: SandboxSpec, labels: Mapping[str, str]) -> int:
    """Remove all containers with these labels; return how many there were.

    Raises:
        ConfinementUnavailable: the engine does not answer.
    """
    program = find_engine_program(spec)
    filters = [word for label in labels.items() for word in ("--filter", f"label={'='.join(label)}")]
    found = await ask_engine(program, ["ps", "--all", "--quiet", "--no-trunc", *filters])
    if found.code:
        raise ConfinementUnavailable(
            f"{spec.engine} can't list its containers: {found.said}",
            "look whether the engine's service works",
        )
    names = found.output.decode(errors="replace").split()
    if names:
        await ask_engine(program, ["rm", "--force", "--volumes", *names])
    return len(names)


async def fill_workspace(spec: SandboxSpec, workspace: Path) -> None:
    """Copy the image's files of ``spec.workdir`` into a directory, if that is empty.

    Raises:
        ConfinementUnavailable: the engine does not answer, or can't make a container of the image.
        ExecutionError: the image has no such directory, or it can't be copied.
    """
    if os.listdir(workspace):  # noqa: PTH208 - one name is enough
        return
    program = find_engine_program(spec)
    name = f"sessiontree-fill-{secrets.token_hex(8)}"
    words = ["create", "--name", name, "--label", f"{LABEL}=fill", "--", spec.image, "/bin/sh"]
    made = await ask_engine(program, words, spec.start_timeout_s)
    if made.code:
        raise ConfinementUnavailable(
            f"{spec.engine} can't make a container of the image {spec.image!r}: {made.said}",
            "try the same image with the engine's own command line",
        )
    try:
        copied = await ask_engine(program, ["cp", f"{name}:{spec.workdir}/.", str(workspace)], COPY_S)
    finally:
        await ask_engine(program, ["rm", "--force", "--volumes", name])
    if copied.code:
        raise ExecutionError(
            f"the files of {spec.workdir!r} in the image {spec.image!r} can't be copied into "
            f"{str(workspace)!r}: {copied.said}; correct SandboxSpec(workdir=…), or set fill=False"
        )
