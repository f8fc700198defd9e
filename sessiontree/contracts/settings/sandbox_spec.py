"""A container as the place of a session's commands: its image, what it may use, and what it sees."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, StringConstraints, field_validator, model_validator

from sessiontree.contracts.kinds import WorkspaceAccess
from sessiontree.contracts.settings.settings import StrictSettings

ContainerEngine: TypeAlias = Literal["podman", "docker"]
"""A program whose command line starts containers."""
ContainerScope: TypeAlias = Literal["tree", "session"]
"""Who shares a container: all sessions of a tree that have the same spec, or nobody."""
FilesWay: TypeAlias = Literal["mount", "copy"]
"""How a container gets the files of the workspace: it mounts the directory, or they are copied."""
MIB: Final = 1024 * 1024
_IMAGE: Final = r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$"
_USER: Final = r"^([A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?)?$"
_VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
_KERNELS: Final = ("/proc", "/sys", "/dev")


class SandboxSpec(StrictSettings):
    """A container in which sessions run their commands, instead of the confinement of this machine.

    The container starts with the first command and ends with its session or tree. File tools work on the
    workspace, which the container sees at ``workdir``. What commands leave running stays until the container
    ends. No variable of the program's own environment reaches it.
    """

    image: Annotated[str, StringConstraints(pattern=_IMAGE, max_length=512)]
    """Name of the image, as the engine knows it; an image that is missing is pulled. It needs ``/bin/sh``."""
    engine: ContainerEngine = "podman"
    """Which command line starts it."""
    program: str = Field(default="", max_length=4096)
    """Absolute path of the engine's program; empty = the engine's name, found in ``PATH``."""
    scope: ContainerScope = "tree"
    """Who shares it: all sessions of the tree with this spec (``tree``), or each has its own."""
    workdir: str = Field(default="/workspace", max_length=4096)
    """Where it sees the workspace, and where commands start; absolute."""
    files: FilesWay = "mount"
    """How it sees the workspace: ``mount``, or ``copy`` where the engine can't mount a directory of this
    machine: files are copied in before each command, and what it changed is copied out after it. Then each
    session has its own container, and one command runs at a time."""
    fill: bool = False
    """Whether an empty workspace of a new tree begins with the image's files of ``workdir``."""
    workspace: WorkspaceAccess = "rw"
    """What it may do to the workspace; a session with a read-only workspace always has ``ro``."""
    env: Mapping[Annotated[str, StringConstraints(pattern=_VARIABLE)], str] = Field(default_factory=dict)
    """Variables of every command. They are shown to all processes of this machine: put no key here."""
    network: bool = False
    """Whether it has the engine's default network; False = none at all."""
    user: Annotated[str, StringConstraints(pattern=_USER, max_length=256)] = ""
    """User and group as ``user[:group]``, by name or number; empty = the image's."""
    memory_bytes: int | None = Field(default=2048 * MIB, ge=4 * MIB)
    """Memory of all its processes; None = the engine's own limit."""
    cpus: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """How many processors it may use; None = the engine's own limit."""
    processes: int | None = Field(default=512, ge=4)
    """Processes and threads at a time; None = the engine's own limit."""
    start_timeout_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """How long it may take to start, in seconds, with the pull of its image."""

    @field_validator("workdir")
    @classmethod
    def _is_a_place(cls, workdir: str) -> str:
        path = PurePosixPath(workdir)
        if (
            not path.is_absolute()
            or ".." in path.parts
            or str(path) == "/"
            or {":", ",", "\0"} & set(workdir)
        ):
            raise ValueError("give an absolute path other than '/', without '..', ':' and ','")
        if any(path.is_relative_to(place) for place in _KERNELS):
            raise ValueError("give a path outside /proc, /sys and /dev")
        return str(path)

    @field_validator("program")
    @classmethod
    def _is_absolute(cls, program: str) -> str:
        if program and not program.startswith("/"):
            raise ValueError("give an absolute path, or nothing for the engine's name in PATH")
        return program

    @field_validator("env")
    @classmethod
    def _can_be_given(cls, env: Mapping[str, str]) -> Mapping[str, str]:
        if any("\0" in value for value in env.values()):
            raise ValueError("a value holds a NUL character")
        return dict(env)

    @model_validator(mode="after")
    def _has_own_copies(self) -> Self:
        if self.files == "copy" and self.scope != "session":
            raise ValueError("files='copy' needs scope='session': a shared one has one copy of the files")
        return self

    @property
    def description(self) -> str:
        """What the system prompt says of the place of a session's commands."""
        network = "It has a network." if self.network else "It has no network."
        return (
            f"Your commands run in a container of the image {self.image}, in the directory {self.workdir}. "
            "That directory is your workspace: file tools know its files by paths relative to it. Only "
            f"commands reach the container's other files. {network} What a command leaves running in the "
            "background stays."
        )
