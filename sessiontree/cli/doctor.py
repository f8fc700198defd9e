"""The command ``sessiontree doctor``: what the checkup saw, what is wrong with it, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sessiontree.api.runtime import ray_door
from sessiontree.backends.ray.engine.cluster_report import ClusterReport
from sessiontree.backends.ray.engine.engine_settings import RayOptions
from sessiontree.browser.found import FoundBrowser, find_browser
from sessiontree.cli.checkup import (
    SHARED_MEMORY,
    Confinement,
    ContainerProgram,
    Installation,
    LiveRuntime,
    State,
    SystemLimits,
    look_at_engines,
    look_at_installation,
    look_at_limits,
    look_at_runtime,
    look_at_state,
    try_confinement,
)
from sessiontree.cli.findings import (
    Finding,
    judge_absence,
    judge_cluster,
    judge_commands,
    judge_confinement,
    judge_installation,
    judge_limits,
    judge_runtime,
    judge_state,
)
from sessiontree.cli.screen import RichScreen, format_count
from sessiontree.cli.tree import find_state_dir
from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.claim import list_journal_dirs
from sessiontree.programs.found import FoundInterpreter, find_interpreter
from sessiontree.sandbox import CommandConfinement, command_confinement, find_speech_program
from sessiontree.sandbox.jobs.job_output import can_draw
from sessiontree.workspace.git_files import find_git

FINE, ILL = 0, 1
"""Exit codes: sessions can run here; something keeps them from it."""


def doctor(
    screen: RichScreen, *, path: Path | None, state_dir: Path | None, address: str | None, as_json: bool
) -> int:
    """Look at everything sessions need, show it with what is wrong, and return the exit code.

    With ``as_json`` one object is printed: ``installation`` (``version``, ``python``, ``executable``,
    ``ray``, ``system``, ``kernel``, ``machine``), ``room`` (``shared_memory_bytes``, ``descriptors``; null =
    none, no limit), ``confinement`` (``offered``, ``full``, ``tried``, ``trial_ms``, ``failure``, ``holds``,
    ``leaves``), ``commands`` (``bubblewrap``: null = none that works, ``kernel``, ``failure``), ``speech``
    (``program``: where espeak-ng is; null = not installed), ``containers`` (each ``engine``, ``program``:
    null = not installed, ``failure``: empty = it answers), ``browser`` (``program``: null = none,
    ``missing``: what to install, ``is_ready``), ``terminal`` (``draws``: whether the extra is installed that
    draws the screens of commands), ``programs`` (``binary``, ``version``, ``missing``: what to install),
    ``git`` (``program``: null = not installed), ``state`` (``directory``, ``mode``, ``journal_mode``,
    ``usable``, ``journal_bytes``, ``trees``, ``damaged_trees``, ``failure``, ``writer``), ``runtime`` (null
    where none is at work; else ``release``, ``backend``, ``trees``, ``actors``: each ``name``, ``role``,
    ``pid``, ``confinement``, ``tree_id``, ``session``, ``epoch``, ``node``: empty = the supervisor's;
    ``ray``: its security settings, null on the local backend), ``cluster`` (null without ``address``, and
    where none answers; else ``address``, ``ray`` as above, and ``nodes``: the fields of ``NodeReport``),
    ``others`` (``state`` and ``runtime`` of each further program's journal), ``findings`` (each ``mark``:
    ``wrong`` or ``beware``, ``what``, ``do``), and ``fine``.

    Args:
        screen: Where it is shown.
        path: The workspace; None = this directory.
        state_dir: Where the journal is; None = the workspace's own place.
        address: A cluster whose nodes are looked at too, as ``host:port`` or ``auto``; None = not.
        as_json: Whether a program reads it.

    Raises:
        ConfigError: the workspace is not a directory, or the address is not one.
    """
    directory = find_state_dir(path, state_dir)
    RayOptions(address).check()
    installation, room = look_at_installation(), look_at_limits()
    confinement, state = try_confinement(directory), look_at_state(directory)
    commands, engines = command_confinement(), look_at_engines()
    found = [*judge_installation(installation), *judge_limits(room)]
    found += [*judge_confinement(confinement), *judge_commands(commands)]
    live = _look_at_live(state, found)
    further = [look_at_state(place) for place in list_journal_dirs(directory) if place != directory]
    others = [(other, _look_at_live(other, found)) for other in further]
    cluster = None if address is None else _look_at_cluster(address, installation, found)
    is_fine = all(finding.mark != "wrong" for finding in found)
    if as_json:
        told = {
            "installation": asdict(installation),
            "room": asdict(room),
            "confinement": confinement.to_json(),
            "commands": commands.to_json(),
            "speech": {"program": find_speech_program()},
            "containers": [asdict(each) for each in engines],
            **_list_components(),
            "state": state.to_json(),
            "runtime": None if live is None else live.to_json(),
            "cluster": None if cluster is None else cluster.to_json(),
            "others": [
                {"state": other.to_json(), "runtime": None if its is None else its.to_json()}
                for other, its in others
            ],
            "findings": [asdict(finding) for finding in found],
            "fine": is_fine,
        }
        screen.raw(dump_json(told))
    else:
        _show_machine(screen, installation, room, confinement)
        _show_commands(screen, commands)
        _show_engines(screen, engines)
        _show_components(screen)
        _show_state(screen, state)
        _show_live(screen, live, state.writer)
        for other, its in others:
            _show_state(screen, other)
            _show_live(screen, its, other.writer)
        if cluster is not None:
            _show_cluster(screen, cluster)
        _show_findings(screen, found)
    return FINE if is_fine else ILL


def _list_components() -> dict[str, object]:
    return {
        "browser": asdict(find_browser()),
        "terminal": {"draws": can_draw()},
        "programs": asdict(find_interpreter()),
        "git": {"program": find_git()},
    }


def _look_at_live(state: State, found: list[Finding]) -> LiveRuntime | None:
    """Return the runtime at work over a journal, and add what is wrong with either."""
    found += judge_state(state)
    live: LiveRuntime | None = None
    try:
        live = asyncio.run(look_at_runtime(state.directory))
    except SessionTreeError as error:
        found.append(Finding.of("wrong", error))
    else:
        found += judge_absence(state) if live is None else judge_runtime(live)
    return live


def _look_at_cluster(address: str, installation: Installation, found: list[Finding]) -> ClusterReport | None:
    """Return the cluster at an address, and add what is wrong with it."""
    try:
        cluster = asyncio.run(ray_door.look_at_cluster(address))
    except SessionTreeError as error:
        found.append(Finding.of("wrong", error))
        return None
    found += judge_cluster(cluster, installation)
    return cluster


def _show_machine(
    screen: RichScreen, installation: Installation, room: SystemLimits, confinement: Confinement
) -> None:
    ray = "no Ray" if installation.ray is None else f"Ray {installation.ray}"
    screen.line(
        f"sessiontree {installation.version}, {ray}, Python {installation.python} ({installation.executable})"
    )
    shared = (
        "no shared memory" if room.shared_memory_bytes is None else _format_size(room.shared_memory_bytes)
    )
    files = "any number of" if room.descriptors is None else f"{room.descriptors:,}"
    screen.line(
        f"system: {installation.system} {installation.kernel}, {installation.machine}; {shared} free in "
        f"{SHARED_MEMORY}, {files} open files a process"
    )
    tried = "failed" if confinement.tried is None else f"gave {confinement.tried}"
    screen.line(
        f"confinement: the kernel offers {confinement.offered}; a trial {tried} in {confinement.trial_ms} ms"
    )
    if confinement.holds():
        screen.line(f"  on Ray a Worker's process can't: {'; '.join(confinement.holds())}")
    screen.line(f"  it can: {'; '.join(confinement.leaves())}")
    screen.line("  Main, Branches and the local backend: no confinement; what their context holds decides")


def _show_commands(screen: RichScreen, commands: CommandConfinement) -> None:
    if commands.failure is not None:
        screen.line("commands: none can be run")
        return
    screen.line(
        f"commands: each confined by bubblewrap {commands.bubblewrap} and {commands.kernel}: no network, "
        "no other process, nothing of the runtime"
    )


def _show_engines(screen: RichScreen, engines: Sequence[ContainerProgram]) -> None:
    told = [
        f"{each.engine} is not installed"
        if each.program is None
        else f"{each.engine} can't start any: {each.failure}"
        if each.failure
        else f"{each.engine} answers"
        for each in engines
    ]
    screen.line(f"containers: {'; '.join(told)}")


def _show_components(screen: RichScreen) -> None:
    _show_speech(screen, find_speech_program())
    _show_browser(screen, find_browser())
    _show_terminal(screen, can_draw=can_draw())
    _show_programs(screen, find_interpreter())
    _show_git(screen, find_git())


def _show_speech(screen: RichScreen, program: str | None) -> None:
    missing = "install the package espeak-ng, or give WebSettings(speech_url=…)"
    screen.line(f"speech: {f'tts speaks by {program}' if program else f'tts needs a program: {missing}'}")


def _show_browser(screen: RichScreen, found: FoundBrowser) -> None:
    screen.line(f"browser: {found.missing or f'ready: {found.program}, in a sandbox of its own'}")


def _show_programs(screen: RichScreen, found: FoundInterpreter) -> None:
    screen.line(f"programs: {found.missing or 'ready: their interpreter runs confined'}")


def _show_terminal(screen: RichScreen, *, can_draw: bool) -> None:
    needs = "screens of commands need the extra terminal (pyte); their plain output is shown without it"
    screen.line(f"terminal: {'ready: screens of commands are drawn' if can_draw else needs}")


def _show_git(screen: RichScreen, program: str | None) -> None:
    ready = f"ready: {program} lists what a child's own workspace holds and makes the patch of its changes"
    missing = "install the package git; without it a child's own workspace is a copy of all files, and its"
    screen.line(f"git: {ready if program else f'{missing} changes can be merged but have no patch'}")


def _show_state(screen: RichScreen, state: State) -> None:
    screen.line(f"state: {state.directory}")
    if state.failure is not None:
        screen.line("  it can't be read")
    elif state.mode is None:
        screen.line("  not there yet; the first tree makes it")
    elif state.trees is None:
        screen.line(f"  mode {state.mode:04o}, no journal yet")
    else:
        whole = "altered first rows" if state.damaged_trees else "whole at a quick look"
        size = _format_size(state.journal_bytes)
        screen.line(
            f"  mode {state.mode:04o}, journal of {size}, {format_count(state.trees, 'tree')}, {whole}"
        )


def _show_live(screen: RichScreen, live: LiveRuntime | None, writer: int | None) -> None:
    if live is None:
        holds = f"none answers; process {writer} holds the journal"
        screen.line(f"runtime: {'none is at work here' if writer is None else holds}")
        return
    trees = ", ".join(live.trees) or "none"
    screen.line(f"runtime: release {live.release}, open trees: {trees}")
    spread = any(actor.node for actor in live.actors)
    screen.table(
        ("actor", "role", "pid", "confinement", "session", "tree", "epoch", *(["node"] if spread else [])),
        [
            (
                actor.name,
                actor.role,
                str(actor.pid) if actor.pid else "",
                actor.confinement,
                actor.session or "",
                actor.tree_id or "",
                str(actor.epoch) if actor.session else "",
                *([actor.node] if spread else []),
            )
            for actor in live.actors
        ],
    )
    if live.security is None:
        screen.line("ray: none; structural: all sessions share one process")
    else:
        _show_ray(screen, live.security)


def _show_ray(screen: RichScreen, security: Mapping[str, Any]) -> None:
    kind = "private" if security.get("private") else "joined"
    screen.line(
        f"ray: {security.get('ray_version')}, {kind}, {format_count(security['nodes'], 'node')}, "
        f"dashboard {security.get('dashboard')}"
    )
    screen.line(f"  authentication: {_describe_authentication(security)}")
    screen.line(f"  directory: {security.get('directory')}, mode {security.get('directory_mode')}")
    listening = security.get("listening") or []
    if not listening:
        screen.line("  other machines may reach: nothing")
        return
    screen.line("  other machines may reach:")
    screen.table(
        ("  address", "port", "process", "pid"),
        [
            (f"  {each['address']}", str(each["port"]), str(each["process"]), str(each["pid"]))
            for each in listening
        ],
    )


def _show_cluster(screen: RichScreen, cluster: ClusterReport) -> None:
    screen.line(
        f"cluster: {cluster.address}, {format_count(len(cluster.nodes), 'node')}, "
        f"dashboard {cluster.security['dashboard']}"
    )
    screen.line(f"  authentication: {_describe_authentication(cluster.security)}")
    screen.table(
        (
            "  node",
            "supervisors",
            "hosts",
            "sessiontree",
            "Python",
            "Ray",
            "confinement",
            "bubblewrap",
            "open sockets",
        ),
        [
            (f"  {each.node}", str(each.supervisors), str(each.hosts), each.failure, *[""] * 5)
            if each.failure is not None
            else (
                f"  {each.node}",
                str(each.supervisors),
                str(each.hosts),
                each.sessiontree or "",
                each.python or "",
                each.ray or "",
                each.confinement if each.is_confined and each.confinement else "incomplete",
                each.bubblewrap or "missing",
                str(len(each.listening)),
            )
            for each in cluster.nodes
        ],
    )


def _describe_authentication(security: Mapping[str, Any]) -> str:
    if security.get("auth_mode") != "token":
        return "none"
    path = security.get("token_path")
    if path is None:
        return "token, in no file: its processes hand it down"
    return f"token in {path}, mode {security.get('token_mode')}"


def _show_findings(screen: RichScreen, found: Sequence[Finding]) -> None:
    for finding in found:
        screen.line(str(finding))
    wrong = sum(finding.mark == "wrong" for finding in found)
    if wrong:
        screen.line(f"{wrong} wrong, {len(found) - wrong} to beware of")
    else:
        screen.line(f"fine: sessions can run here; {len(found) or 'nothing'} to beware of")


def _format_size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
