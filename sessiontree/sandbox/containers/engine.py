"""The command line of a container engine: its words, its environment, and one question to it.

podman and docker accept the same words for what is used here. Every word is an argument of its own: no shell
of this machine reads an image's name, a variable or a command. The engine's program gets an environment made
of an allow-list, and hands none of it to a container.

Source: the reference pages of ``docker run``, ``exec``, ``cp``, ``ps`` and ``rm``, and of podman 4.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import resource
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from sessiontree.contracts.errors import ConfinementUnavailable
from sessiontree.contracts.settings.sandbox_spec import SandboxSpec

PASSED: Final = (
    "PATH", "HOME", "USER", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY",
    "DOCKER_CERT_PATH", "CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "REGISTRY_AUTH_FILE",
)  # fmt: skip
"""Variables of this process that the engine's program gets: where it is, and where its service is."""
LABEL: Final = "sessiontree"
"""Label of every container; its value names the journal of the tree."""
TREE_LABEL: Final = "sessiontree.tree"
OPEN_FILES: Final = 4096
OWN_PROCESSES: Final = 32_768
"""Processes of one user; podman's monitor can't hand on more. The container's own number bounds it too."""
SAID_CHARS: Final = 500
MAX_ANSWER_BYTES: Final = 16 * 2**20
"""Longest answer to a question that copies no files."""
_PIECE: Final = 65_536
END_S: Final = 10.0
"""How long the end of a program that was killed is waited for."""
COPY_S: Final = 600.0
"""How long files may take to be copied between a container and this machine."""
QUESTION_S: Final = 60.0
"""How long an engine may take to answer a question that starts nothing."""
KEEPER: Final = 'exec 3<&0; { while read -r _ <&3; do :; done; } & echo ready; wait "$!"'
"""The first process of a container. It collects processes that others left, and ends when its input does:
that is a pipe from the process that started it, which the kernel closes however that process ends."""
WRAPPER: Final = """exec 2>&1
cd "$3" 2>/dev/null || { printf '%s nowhere\\n' "$1"; exit; }
printf '%s started %s\\n' "$1" "$$"
trap : TERM
if [ -x /bin/bash ]; then /bin/bash -c "$2"; else /bin/sh -c "$2"; fi
code=$?
printf '\\n%s exited %s\\n' "$1" "$code"
"""
"""Runs one command in a directory, and reports its beginning and its end among its output, with a mark."""
SIGNALLER: Final = """for entry in /proc/[0-9]*; do
pid=${entry#/proc/}
[ "$pid" = 1 ] && continue
[ "$pid" = "$$" ] && continue
found=
line=
while IFS= read -r line || [ -n "$line" ]; do
case $line in *"$1"*) found=1; break;; esac
line=
done < "$entry/environ"
if [ -z "$found" ] && read -r line < "$entry/stat"; then
set -- "$1" "$2" "$3" ${line##*) }
[ "${7:-}" = "$3" ] && found=1
fi
[ -n "$found" ] && kill -s "$2" "$pid"
done 2>/dev/null
exit 0
"""
"""Sends a signal to all processes of a command: those that have its mark among their variables, and those of
its session (``setsid``). Only the shell's own words are used: an image may have no other program."""
MARK: Final = "SESSIONTREE_COMMAND"


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """What an engine's program answered."""

    code: int
    output: bytes
    said: str
    """Its errors, cut."""
    is_cut: bool = False
    """Whether it wrote more than it may, and was ended."""


def find_engine_program(spec: SandboxSpec) -> str:
    """Return the engine's program.

    Raises:
        ConfinementUnavailable: it is not installed.
    """
    if spec.program:
        if os.access(spec.program, os.X_OK):
            return spec.program
        raise ConfinementUnavailable(
            f"the engine's program {spec.program!r} can't be executed", "correct SandboxSpec(program=…)"
        )
    found = shutil.which(spec.engine)
    if found is None:
        raise ConfinementUnavailable(
            f"the container engine {spec.engine!r} is not installed",
            "install it, or choose another one by SandboxSpec(engine=…)",
        )
    return found


def build_engine_environment() -> dict[str, str]:
    """Return all variables of an engine's program."""
    return {name: os.environ[name] for name in PASSED if name in os.environ}


def run_words(
    spec: SandboxSpec, name: str, labels: Mapping[str, str], mounts: Sequence[tuple[str, str, str]]
) -> list[str]:
    """Return the words that start a container, which lives as long as its input is open.

    Args:
        spec: What it is made of.
        name: Its name.
        labels: How it is found again.
        mounts: Directories of this machine, where it sees them, and ``rw`` or ``ro``.
    """
    words = ["run", "--interactive", "--rm", "--name", name, "--security-opt", "no-new-privileges"]
    words += ["--security-opt", "label=disable"]  # SELinux would keep it from the mounted workspace
    words += [word for label in labels.items() for word in ("--label", "=".join(label))]
    words += ["--network", "none"] if not spec.network else []
    if spec.engine == "podman":
        words.append("--http-proxy=false")  # a proxy's address can hold a password
        words += _own_limit("nproc", resource.RLIMIT_NPROC, OWN_PROCESSES)
    words += _own_limit("nofile", resource.RLIMIT_NOFILE, OPEN_FILES)
    if spec.memory_bytes is not None:
        words += ["--memory", f"{spec.memory_bytes}b", "--memory-swap", f"{spec.memory_bytes}b"]
    if spec.cpus is not None:
        words += ["--cpus", f"{spec.cpus:g}"]
    if spec.processes is not None:
        words += ["--pids-limit", str(spec.processes)]
    if spec.user:
        words += ["--user", spec.user]
    words += [word for name, value in spec.env.items() for word in ("--env", f"{name}={value}")]
    words += [word for mount in mounts for word in ("--volume", ":".join(mount))]
    return [*words, "--workdir", spec.workdir, "--entrypoint", "/bin/sh", "--", spec.image, "-c", KEEPER]


def _own_limit(name: str, number: int, most: int | None = None) -> list[str]:
    """Return a limit that this process may hand on: without privileges an engine can't raise it."""
    hard = resource.getrlimit(number)[1]
    if hard == resource.RLIM_INFINITY:
        return [] if most is None else ["--ulimit", f"{name}={most}:{most}"]
    kept = hard if most is None else min(hard, most)
    return ["--ulimit", f"{name}={kept}:{kept}"]


def exec_words(name: str, workdir: str, env: Mapping[str, str], command: str, mark: str) -> list[str]:
    """Return the words that run one command line in a container.

    Args:
        name: The container.
        workdir: Where the command starts, from the container's own working directory; it may be missing.
        env: Its variables.
        command: Argument of ``bash -c``, or of ``sh -c`` where the image has no bash.
        mark: Names the command.
    """
    # The mark comes last, so that a call can't replace it and hide its processes from the signals.
    variables = {**env, MARK: mark}
    words = [word for each, value in variables.items() for word in ("--env", f"{each}={value}")]
    return ["exec", *words, name, "/bin/sh", "-c", WRAPPER, "sh", mark, command, workdir]


def signal_words(name: str, mark: str, signal_name: str, session: str) -> list[str]:
    """Return the words that send a signal to all processes of a command.

    Args:
        name: The container.
        mark: The command's.
        signal_name: Such as ``TERM``.
        session: Id of the command's session in the container, as its beginning was reported.
    """
    return ["exec", name, "/bin/sh", "-c", SIGNALLER, "sh", f"{MARK}={mark}", signal_name, session or "-"]


@contextlib.asynccontextmanager
async def run_engine(
    program: str, words: Sequence[str], *, stdin: int, stdout: int | BinaryIO, stderr: int | BinaryIO
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the engine's program and yield its process; at the end it is killed if it still runs.

    It is in a session of its own: what a terminal sends to this program must not reach a container.

    Raises:
        ConfinementUnavailable: it can't be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *words,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=build_engine_environment(),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise ConfinementUnavailable(
            f"the container engine {program!r} can't be started: {error}", "install it again"
        ) from error
    try:
        yield process
    finally:
        # A cancelled caller must not leave the engine's program behind: it holds the pipes and a connection
        # to the service.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            # Its end is seen when its output has been read. What it has started may hold that open.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    for stream in filter(None, (process.stdout, process.stderr)):
                        while await stream.read(_PIECE):
                            pass
                    await process.wait()


async def ask_engine(
    program: str,
    words: Sequence[str],
    timeout_s: float = QUESTION_S,
    data: bytes = b"",
    *,
    most_bytes: int = MAX_ANSWER_BYTES,
) -> EngineAnswer:
    """Run the engine's program once, and return what it answered; it is ended after ``most_bytes``.

    Raises:
        ConfinementUnavailable: it can't be started, or takes longer than ``timeout_s``.
    """
    pipe = asyncio.subprocess.PIPE
    async with run_engine(program, words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            async with asyncio.timeout(timeout_s):
                output, errors = await _talk(process, data, most_bytes)
        except TimeoutError:
            raise ConfinementUnavailable(
                f"{Path(program).name} {words[0]} did not answer within {timeout_s:g} s",
                "look whether the engine's service works",
            ) from None
    return EngineAnswer(process.returncode or 0, output, cut_words(errors), len(output) > most_bytes)


async def _talk(process: asyncio.subprocess.Process, data: bytes, most_bytes: int) -> tuple[bytes, bytes]:
    """Return what a process writes and the end of its errors; it reads ``data`` meanwhile."""
    assert process.stdin and process.stdout and process.stderr  # noqa: S101 - they are pipes
    feeding = asyncio.create_task(_feed(process.stdin, data))
    hearing = asyncio.create_task(_read_end(process.stderr))
    kept = io.BytesIO()
    try:
        while piece := await process.stdout.read(_PIECE):
            kept.write(piece)
            # With each piece: a container's files may be larger than the memory of this machine.
            if kept.tell() > most_bytes:
                return kept.getvalue(), b""  # it is killed by whoever started it
        await asyncio.wait({feeding, hearing})
        await process.wait()
        return kept.getvalue(), hearing.result()
    finally:
        feeding.cancel()
        hearing.cancel()
        # Only one may read a stream: whoever reads the rest would fail while this one still waits.
        await asyncio.wait({feeding, hearing})


async def _feed(stdin: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # it has ended without reading all
        stdin.write(data)
        await stdin.drain()
    stdin.close()


async def _read_end(stream: asyncio.StreamReader) -> bytes:
    end = b""
    while piece := await stream.read(_PIECE):
        end = (end + piece)[-_PIECE:]
    return end


def check_engine(spec: SandboxSpec) -> str:
    """Return why an engine can start nothing here; empty = it answers. Blocks."""
    try:
        program = find_engine_program(spec)
        done = subprocess.run(  # noqa: S603 - the owner's own program
            [program, "ps", "--quiet"],
            capture_output=True,
            env=build_engine_environment(),
            cwd="/",
            timeout=QUESTION_S,
        )
    except (ConfinementUnavailable, OSError, subprocess.SubprocessError) as error:
        return str(error)
    return f"{program!r} does not work: {cut_words(done.stderr)}" if done.returncode else ""


def cut_words(errors: bytes) -> str:
    """Return the end of what a program said, in one line."""
    text = " ".join(errors.decode("utf-8", "replace").replace("\0", "\ufffd").split())
    return text if len(text) <= SAID_CHARS else f"…{text[-SAID_CHARS:]}"
