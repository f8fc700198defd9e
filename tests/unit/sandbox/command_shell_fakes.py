"""Sandboxes of commands that lack a part: what a careless hand would have left out."""

from __future__ import annotations

import inspect
import io
import marshal
import os
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sessiontree.contracts.handles.ports import COMMAND_CLEANUP_S, Finished
from sessiontree.sandbox.commands import command_launcher
from sessiontree.sandbox.commands.command_bounds import Bounds, CommandWatch
from sessiontree.sandbox.commands.command_launcher import BOOT
from sessiontree.sandbox.commands.command_plan import Command, build_shell_words, pack_plan
from sessiontree.sandbox.commands.command_process import CommandProcess
from sessiontree.sandbox.commands.environment import (
    get_running_interpreter,
    list_program_folders,
    make_fresh_environment,
    mount_words,
)
from sessiontree.sandbox.commands.kernel_support import find_bubblewrap, require_machine
from sessiontree.sandbox.jail import ALLOW, compute_handled_rights, query_landlock_abi

Words = Callable[[list[str]], list[str]]
Plan = dict[str, Any]


class CarelessShell:
    """Runs commands as the real shell does, but for what was changed about words and plan."""

    def __init__(
        self,
        workspace: Path,
        hidden: tuple[Path, ...],
        *,
        words: Words = list,
        plan: Callable[[Plan], None] = lambda plan: None,
        source: Callable[[str], str] = str,
        watch: Callable[[int], CommandWatch] | None = None,
    ) -> None:
        self._workspace = os.path.realpath(workspace)
        self._hidden = [os.path.realpath(path) for path in hidden]
        self._words = words
        self._plan = plan
        self._source = source
        self._watch = watch

    async def run(
        self,
        command: str,
        *,
        workdir: str = ".",
        env: Mapping[str, str] = MappingProxyType({}),
        timeout_s: float,
        keep_bytes: int = 50_000,
        on_output: Callable[[str], None] | None = None,
    ) -> Finished:
        assert workdir == "."
        bounds, interpreter = Bounds(), get_running_interpreter()
        environment = make_fresh_environment(
            list_program_folders(interpreter, self._workspace), self._workspace, env
        )
        asked = Command(build_shell_words(command), self._workspace, self._workspace, environment)
        file = io.BytesIO(pack_plan(asked, bounds, require_machine()))
        _, plan = marshal.load(file), marshal.load(file)  # noqa: S302 - made a line ago
        launcher = compile(self._source(inspect.getsource(command_launcher)), "launcher", "exec")
        self._plan(plan)
        words = self._words(
            [find_bubblewrap(), *mount_words(self._workspace, self._hidden, interpreter, bounds)]
        )
        process = CommandProcess(
            [*words, "--", interpreter.real_program, "-I", "-S", "-c", BOOT],
            marshal.dumps(launcher) + marshal.dumps(plan),
            self._watch or partial(CommandWatch, workspace=self._workspace, bounds=bounds),
            bounds,
            cleanup_s=lambda: COMMAND_CLEANUP_S,
            keep_bytes=keep_bytes,
            on_output=on_output,
        )
        return await process.run(timeout_s)


def reporting_late(source: str) -> str:
    """Let time pass before the launcher reports the start."""
    report = "_report_start(status_fd, sent)\n    os.close(hold)"
    assert source.count(report) == 1
    return source.replace(report, f"__import__('select').select([], [], [], 0.3); {report}")


def reporting_besides(source: str, line: str) -> str:
    """Report one line more, as whoever could write the report would."""
    starts = "    os.close(hold)  # it can be asked"
    assert source.count(starts) == 1
    return source.replace(starts, f"    _report(status_fd, {line!r})\n{starts}")


def open_to_all(source: str) -> str:
    """Let every process inside look into the launcher."""
    hiding = "        _hide()\n"
    assert source.count(hiding) == 1
    return source.replace(hiding, "")


def without_landlock(plan: Plan) -> None:
    """Allow every right everywhere."""
    plan["ruleset"] = plan["ruleset"][:8]
    plan["rules"].append(("/", compute_handled_rights(query_landlock_abi())))


def without_filter(plan: Plan) -> None:
    """Allow every call."""
    plan["filter"] = struct.pack("=HBBI", 0x06, 0, 0, ALLOW)


def without_network_rules(plan: Plan) -> None:
    """Allow sockets and ports: only the namespace is left."""
    without_filter(plan)
    plan["ruleset"] = plan["ruleset"][:8]


def without_limits(plan: Plan) -> None:
    """Leave each process what the runtime's own may use."""
    plan["limits"] = []


def with_the_network(words: list[str]) -> list[str]:
    """Keep the machine's network."""
    return [*words, "--share-net"]


def with_the_processes(words: list[str]) -> list[str]:
    """Leave out the namespace of processes; what is seen of them is the machine's."""
    kept = [word for word in words if word not in {"--unshare-all", "--as-pid-1"}]
    return [kept[0], "--unshare-ipc", "--unshare-net", "--unshare-uts", *kept[1:]]


def without_covers(words: list[str]) -> list[str]:
    """Leave hidden directories as they are."""
    kept, rest = [], list(words)
    while rest:
        if rest[:2] == ["--perms", "0555"]:
            del rest[:6]
        else:
            kept.append(rest.pop(0))
    return kept


def without_pins(words: list[str]) -> list[str]:
    """Leave out what keeps directories on the way to hidden ones from being renamed."""
    places = [index for index, word in enumerate(words) if word == "--bind"]
    for index in reversed(places[1:]):  # the first is the workspace
        words = words[:index] + words[index + 3 :]
    return words
