"""Findings: what is wrong with what a checkup saw, and what to do. Reads nothing but the environment."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from sessiontree.backends.ray.engine_settings import OBJECT_STORE_BYTES, OLDEST, Wishes, check_version
from sessiontree.cli.checkup import SHARED_MEMORY, Installation, Live, Room, State
from sessiontree.cli.confinement import Confinement
from sessiontree.contracts.errors import ConfigError
from sessiontree.runtime.settings import OBSERVING
from sessiontree.sandbox import CommandConfinement, Level

Mark: TypeAlias = Literal["wrong", "beware"]
"""``wrong`` keeps sessions from running; ``beware`` does not."""

LEAST_DESCRIPTORS = 64
"""With fewer no session of Ray 2.60 gets to work: each of its servers opens some 60 before the first one."""
ENOUGH_DESCRIPTORS = 4096
"""Below this Ray itself warns; its raylet opens three more for each host."""
MIB = 2**20
_OTHERS, _OTHERS_WRITE = 0o077, 0o022
_LOCAL = "or run with backend='local'"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and what to do."""

    mark: Mark
    what: str
    do: str

    @classmethod
    def of(cls, mark: Mark, error: Exception, also: str = "") -> Self:
        """Return what an error tells; ours say what to do behind a semicolon."""
        what, _, do = str(error).partition("; ")
        return cls(mark, what, ", ".join(part for part in (do, also) if part))

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.mark}: {self.what}" + (f"; {self.do}" if self.do else "")


def of_installation(installation: Installation) -> Iterator[Finding]:
    """Yield what is wrong with Ray, and with how it would be started here."""
    if installation.ray is None:
        oldest = ".".join(map(str, OLDEST))
        yield Finding("wrong", "Ray is not installed", f"install ray {oldest} or later, {_LOCAL}")
    else:
        try:
            check_version(installation.ray)
        except ConfigError as error:
            yield Finding.of("wrong", error, _LOCAL)
    try:
        Wishes().for_private_ray()
    except ConfigError as error:
        yield Finding.of("wrong", error)


def of_room(room: Room) -> Iterator[Finding]:
    """Yield what is too small for Ray."""
    shared, most = room.shared_memory_bytes, room.descriptors
    if shared is not None and shared < OBJECT_STORE_BYTES:
        yield Finding(
            "beware",
            f"{SHARED_MEMORY} has {shared // MIB:,} MiB free, Ray wants {OBJECT_STORE_BYTES // MIB}: "
            "large results will be slow",
            "free it, or enlarge it (`docker run --shm-size=256m`)",
        )
    if most is not None and most < ENOUGH_DESCRIPTORS:
        mark: Mark = "wrong" if most < LEAST_DESCRIPTORS else "beware"
        yield Finding(
            mark,
            f"a process may open {most:,} files, Ray asks for {ENOUGH_DESCRIPTORS:,}: "
            + ("no session gets to work" if mark == "wrong" else "many sessions at a time may fail to start"),
            f"raise the hard limit (`ulimit -Hn {ENOUGH_DESCRIPTORS}` as root, nofile in limits.conf)",
        )


def of_confinement(confinement: Confinement) -> Iterator[Finding]:
    """Yield what keeps Workers from being confined."""
    if not confinement.offered.is_full:
        yield Finding(
            "wrong",
            f"this kernel confines processes only as far as {confinement.offered}, not to Landlock ABI 3 and "
            "seccomp: nothing runs on Ray by default",
            "boot Linux 6.2 or later with lsm=landlock,…, or give kernel_enforcement='best_effort' to run "
            f"Workers all the same, {_LOCAL}",
        )
    if confinement.failure is not None:
        yield Finding.of("wrong", confinement.failure)


def of_commands(commands: CommandConfinement) -> Iterator[Finding]:
    """Yield what keeps commands from being run."""
    if commands.failure is not None:
        yield Finding(
            "beware", f"exec runs nothing here: {commands.failure.missing}", commands.failure.remedy
        )


def of_state(state: State) -> Iterator[Finding]:
    """Yield what is wrong with a state directory."""
    place = repr(str(state.directory))
    if not state.is_usable and state.failure is None:
        yield Finding(
            "wrong",
            f"the state directory {place} can't be written by this user",
            "give another one with --state-dir, or give it to this user",
        )
    mode, journal_mode = state.mode or 0, state.journal_mode or 0
    if mode & _OTHERS:
        may = "see what lies"
        if mode & _OTHERS_WRITE:
            may = "replace or remove what lies"
        elif journal_mode & _OTHERS:
            may = "read the journal"
        yield Finding(
            "beware",
            f"other users can {may} in the state directory {place}, mode {mode:04o}",
            f"chmod 700 {shlex.quote(str(state.directory))}",
        )
    if state.failure is not None:
        yield Finding.of("wrong", state.failure)
    if state.damaged_trees:
        yield Finding(
            "beware",
            f"the first rows of {len(state.damaged_trees)} trees are altered: {_some(state.damaged_trees)}",
            "they can't be resumed; restore the state directory from a backup",
        )


def of_absence(state: State) -> Iterator[Finding]:
    """Yield what keeps a runtime from being started where none is at work."""
    if state.writer is not None:
        yield Finding(
            "wrong",
            f"process {state.writer} holds the journal in {str(state.directory)!r} and opens no control "
            "socket: its trees can't be reached",
            "it may be starting or ending: look again, or end it",
        )


def of_live(live: Live) -> Iterator[Finding]:
    """Yield what a runtime at work should not be left with."""
    for actor in live.actors:
        if actor.role == OBSERVING and actor.pid and not _is_full(actor.confinement):
            yield Finding(
                "beware",
                f"{actor.name} (pid {actor.pid}) embodies Workers and is confined only as far as "
                f"{actor.confinement}",
                "leave kernel_enforcement at 'required' to run none so",
            )
    if live.security is not None:
        yield from _of_ray(live.security)


def _of_ray(security: Mapping[str, Any]) -> Iterator[Finding]:
    is_private, mode = security.get("private"), security.get("token_mode")
    if security.get("auth_mode") != "token":
        yield Finding(
            "beware",
            "this Ray asks nobody for a token: whoever reaches it runs code as its user",
            "unset RAY_AUTH_MODE and leave out insecure=True"
            if is_private
            else "start it with RAY_AUTH_MODE=token",
        )
    if isinstance(mode, str) and int(mode, 8) & _OTHERS:
        path = security.get("token_path")
        yield Finding(
            "beware",
            f"the file {path} of Ray's token has mode {mode}: whoever reads it gets into this Ray",
            f"chmod 600 {shlex.quote(str(path))}",
        )
    failed = security.get("failed_starts") or []
    if failed:
        yield Finding(
            "beware",
            f"{len(failed)} of the last starts failed, the last of {failed[-1]}",
            "look at the machine's memory and at the logs in Ray's directory; what failed is started again",
        )
    listening = security.get("listening") or []
    if listening:
        yield _of_listening(listening, int(security.get("nodes") or 1))


def _of_listening(listening: list[Mapping[str, Any]], nodes: int) -> Finding:
    """Return one finding for all that other machines may reach, with the rule of a firewall against it."""
    told = [f"{each['process']} (pid {each['pid']}) on {_socket(each)}" for each in listening]
    ports = ", ".join(str(port) for port in sorted({int(each["port"]) for each in listening}))
    if nodes > 1:
        wish, but = "let in its own machines alone", "ip saddr != { their addresses } "
        otherwise = ""
    else:
        wish, but = "keep them out", ""
        otherwise = ", or leave out ray.init() and address: a private Ray listens to this machine alone"
    rule = f'iifname != "lo" {but}tcp dport {{ {ports} }} drop'
    table = f"table inet sessiontree {{ chain input {{ type filter hook input priority 0; {rule}; }} }}"
    what = f"other machines may reach this Ray at {len(told)} of its sockets: {_some(told, 3)}"
    return Finding("beware", what, f"{wish}: nft '{table}'{otherwise}")


def _socket(listener: Mapping[str, Any]) -> str:
    address = str(listener["address"])
    return f"[{address}]:{listener['port']}" if ":" in address else f"{address}:{listener['port']}"


def _is_full(confinement: str) -> bool:
    try:
        return Level.parse(confinement).is_full
    except ConfigError:
        return False


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
