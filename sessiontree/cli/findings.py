"""What is wrong with a machine, its Ray and its runtimes, and what to do about it.

The functions ``judge_…`` judge what the checkup saw; they read nothing but the environment.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Literal, Self, TypeAlias

from sessiontree.backends.ray.engine.cluster_report import ClusterReport, NodeReport
from sessiontree.backends.ray.engine.engine_settings import (
    OBJECT_STORE_BYTES,
    OLDEST,
    RayOptions,
    check_version,
)
from sessiontree.cli.checkup import SHARED_MEMORY, Confinement, Installation, LiveRuntime, State, SystemLimits
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.scheduling.settings import OBSERVING
from sessiontree.sandbox import CommandConfinement, Level

Mark: TypeAlias = Literal["wrong", "beware"]
"""``wrong`` keeps sessions from running; ``beware`` does not."""

LEAST_DESCRIPTORS = 64
"""With fewer, no session of Ray 2.60 starts: each of its servers opens about 60 before the first one."""
ENOUGH_DESCRIPTORS = 4096
"""Below this number Ray itself warns; its raylet opens three more for each host."""
MIB = 2**20
_OTHERS, _OTHERS_WRITE = 0o077, 0o022
_LOCAL = "or run with backend='local'"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, and what to do about it."""

    mark: Mark
    what: str
    do: str

    @classmethod
    def of(cls, mark: Mark, error: Exception, also: str = "") -> Self:
        """Return the finding of an error; this library's errors say what to do after a semicolon."""
        what, _, do = str(error).partition("; ")
        return cls(mark, what, ", ".join(part for part in (do, also) if part))

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.mark}: {self.what}" + (f"; {self.do}" if self.do else "")


def judge_installation(installation: Installation) -> Iterator[Finding]:
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
        RayOptions().to_private_ray()
    except ConfigError as error:
        yield Finding.of("wrong", error)


def judge_limits(room: SystemLimits) -> Iterator[Finding]:
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


def judge_confinement(confinement: Confinement) -> Iterator[Finding]:
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


def judge_commands(commands: CommandConfinement) -> Iterator[Finding]:
    """Yield what keeps commands from being run."""
    if commands.failure is not None:
        yield Finding(
            "beware", f"exec runs nothing here: {commands.failure.missing}", commands.failure.remedy
        )


def judge_state(state: State) -> Iterator[Finding]:
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
        may = "see what is"
        if mode & _OTHERS_WRITE:
            may = "replace or remove what is"
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
            f"the first rows of {len(state.damaged_trees)} trees are altered: "
            f"{_list_some(state.damaged_trees)}",
            "they can't be resumed; restore the state directory from a backup",
        )


def judge_absence(state: State) -> Iterator[Finding]:
    """Yield what keeps a runtime from being started if none is live."""
    if state.writer is not None:
        yield Finding(
            "wrong",
            f"process {state.writer} holds the journal in {str(state.directory)!r} and opens no control "
            "socket: its trees can't be reached",
            "it may be starting or ending: look again, or end it",
        )


def judge_runtime(live: LiveRuntime) -> Iterator[Finding]:
    """Yield what is wrong with a live runtime."""
    for actor in live.actors:
        if actor.role == OBSERVING and actor.pid and not _is_full(actor.confinement):
            yield Finding(
                "beware",
                f"{actor.name} (pid {actor.pid}) embodies Workers and is confined only as far as "
                f"{actor.confinement}",
                "leave kernel_enforcement at 'required' to run none so",
            )
    if live.security is not None:
        yield from _judge_ray(live.security)


def judge_cluster(cluster: ClusterReport, installation: Installation) -> Iterator[Finding]:
    """Yield what is wrong with a cluster, as this program would use it."""
    gone = [each.node for each in cluster.nodes if not each.alive]
    if gone:
        yield Finding(
            "beware",
            f"nodes that left the cluster: {_list_some(gone)}",
            "start them again to resume the trees on their disks, or ignore it if you ended them",
        )
    here = {
        "sessiontree": installation.version,
        "Python": installation.python,
        "Ray": installation.ray or "no release",
    }
    open_sockets: list[Mapping[str, Any]] = []
    for node in cluster.nodes:
        if node.alive:
            yield from _judge_node(node, here)
            open_sockets += [
                {**each, "process": f"{each['process']} of {node.node}"} for each in node.listening
            ]
    yield from _judge_ray({**cluster.security, "key_variables": [], "listening": open_sockets})
    dashboard = str(cluster.security["dashboard"])
    if dashboard != "off" and not _is_loopback(dashboard):
        yield Finding(
            "beware",
            f"other machines may reach this Ray's dashboard at {dashboard}",
            "start the head with --include-dashboard=false or --dashboard-host=127.0.0.1",
        )


def _judge_node(node: NodeReport, here: Mapping[str, str]) -> Iterator[Finding]:
    what = f"node {node.node}"
    if node.failure is not None:
        yield Finding(
            "wrong",
            f"{what} tells nothing: {node.failure}",
            "look at its raylet and install the same there as here, or take it out of the cluster",
        )
        return
    there = {"sessiontree": node.sessiontree, "Python": node.python, "Ray": node.ray}
    others = [
        f"{name} {there[name]} instead of {wanted}" for name, wanted in here.items() if there[name] != wanted
    ]
    if others:
        yield Finding("wrong", f"{what} has {'; '.join(others)}", "install the same on every node")
    if not node.is_confined:
        why = node.confinement_failure or f"its kernel offers {node.confinement}"
        yield Finding(
            "wrong",
            f"{what} can't confine Workers: {why}",
            "boot Linux 6.2 or later with lsm=landlock,… there, or keep Workers off it",
        )
    if node.command_failure is not None:
        yield Finding(
            "beware", f"exec runs nothing on {what}: {node.command_failure}", "install bubblewrap there"
        )
    if node.key_variables:
        yield Finding(
            "beware",
            f"Ray's processes on {what} have variables that may hold keys: "
            f"{_list_some(node.key_variables, 3)}",
            "start Ray there without them",
        )


def _is_loopback(socket: str) -> bool:
    host = socket.rpartition("//")[2].rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _judge_ray(security: Mapping[str, Any]) -> Iterator[Finding]:
    is_private, mode = security.get("private"), security.get("token_mode")
    if security.get("auth_mode") != "token":
        yield Finding(
            "beware",
            "this Ray asks for no token: anyone who reaches it can run code as its user",
            "unset RAY_AUTH_MODE and leave out insecure=True"
            if is_private
            else "start it with RAY_AUTH_MODE=token",
        )
    if isinstance(mode, str) and int(mode, 8) & _OTHERS:
        path = security.get("token_path")
        yield Finding(
            "beware",
            f"the file {path} of Ray's token has mode {mode}: anyone who reads it can use this Ray",
            f"chmod 600 {shlex.quote(str(path))}",
        )
    names = security.get("key_variables") or []
    if names:
        yield Finding(
            "beware",
            f"this Ray's processes have variables that may hold keys: {_list_some(names, 3)}",
            "start it without them, or leave out ray.init() and address: a private Ray gets none",
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
        yield _judge_listening(listening, int(security.get("nodes") or 1))


def _judge_listening(listening: list[Mapping[str, Any]], nodes: int) -> Finding:
    """Return one finding for all that other machines may reach, with the rule of a firewall against it."""
    told = [f"{each['process']} (pid {each['pid']}) on {_format_address(each)}" for each in listening]
    ports = ", ".join(str(port) for port in sorted({int(each["port"]) for each in listening}))
    if nodes > 1:
        wish, but = "let in its own machines alone", "ip saddr != { their addresses } "
        otherwise = ""
    else:
        wish, but = "keep them out", ""
        otherwise = ", or leave out ray.init() and address: a private Ray listens to this machine alone"
    rule = f'iifname != "lo" {but}tcp dport {{ {ports} }} drop'
    table = f"table inet sessiontree {{ chain input {{ type filter hook input priority 0; {rule}; }} }}"
    what = f"other machines may reach this Ray at {len(told)} of its sockets: {_list_some(told, 3)}"
    return Finding("beware", what, f"{wish}: nft '{table}'{otherwise}")


def _format_address(listener: Mapping[str, Any]) -> str:
    address = str(listener["address"])
    return f"[{address}]:{listener['port']}" if ":" in address else f"{address}:{listener['port']}"


def _is_full(confinement: str) -> bool:
    try:
        return Level.parse(confinement).is_full
    except ConfigError:
        return False


def _list_some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
