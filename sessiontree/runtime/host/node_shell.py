"""Commands on a named node: which node a name means, and what runs a command there.

A name is looked up twice: before anybody is asked about a call, and when the call runs. What reaches another
machine is the backend's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.facts.stimuli import Stimulus
from sessiontree.contracts.handles.nodes import NodeInfo, Nodes, find_node
from sessiontree.contracts.handles.ports import Finished
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.results import ImmediateOutcome, PreparedCall
from sessiontree.runtime.runner.interceptors import Blame, CallChecked
from sessiontree.sandbox import JobShell
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.commands.command_process import OnOutput
from sessiontree.sandbox.commands.command_shell import check_command
from sessiontree.sandbox.commands.environment import check_variables
from sessiontree.sandbox.commands.running_commands import RunningCommands
from sessiontree.session.instructions import PrepareCall
from sessiontree.session.state import SessionState


class HostNodes(Nodes, Protocol):
    """The nodes as a host has them: it can also run commands there."""

    def open_shell(self, node: NodeInfo, workspace: Path, running: RunningCommands) -> JobShell:
        """Return what runs commands on a node without confinement, and says where in their channel.

        Args:
            node: The node.
            workspace: Where a command starts if that very directory is on the node.
            running: The session's other commands; these count among them, and end with them.
        """
        ...


class NodeShell:
    """Runs commands on the node that a name means; see :class:`~sessiontree.sandbox.JobShell`.

    Args:
        nodes: The nodes of the runtime.
        name: Name, id or beginning of the id of one.
        workspace: The session's workspace.
        running: The session's other commands.
    """

    def __init__(self, nodes: HostNodes, name: str, workspace: Path, running: RunningCommands) -> None:
        self._nodes = nodes
        self._name = name
        self._workspace = workspace
        self._running = running

    async def run(
        self,
        command: str,
        *,
        workdir: str = ".",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        keep_bytes: int = 50_000,
        on_output: OnOutput | None = None,
        channel: CommandChannel | None = None,
    ) -> Finished:
        """Run one command line there.

        Raises:
            ValidationError: no node has the name, or several; or the command or a variable can't be given.
            ExecutionError: it was not started, or its node was lost and what it did is not known.
        """
        check_command(command)
        check_variables(env or {})
        node = find_node(self._name, await self._nodes.nodes(), alive=True)
        channel = channel or CommandChannel()
        finished = await self._nodes.open_shell(node, self._workspace, self._running).run(
            command,
            workdir=workdir,
            env=env,
            timeout_s=timeout_s,
            keep_bytes=keep_bytes,
            on_output=on_output,
            channel=channel,
        )
        return replace(finished, place=channel.place)


def describe_node(node: NodeInfo) -> str:
    """Return a node's name and the beginning of its id, for people."""
    return f"{node.name} ({node.node_id[:8]})"


class NodeCheck:
    """Refuses a call on a node that is not there before anybody is asked; an interceptor of one session.

    Args:
        dispatcher: Makes the refusal.
        nodes: The nodes of the runtime.
    """

    has_leftover_work = False

    def __init__(self, dispatcher: Dispatcher, nodes: Nodes) -> None:
        self._dispatcher = dispatcher
        self._nodes = nodes

    def attach(self, state: SessionState, blame: Blame) -> None:
        """Need neither."""

    def must_admit(self, stimulus: Stimulus) -> bool:
        """Return that every stimulus passes at once."""
        return False

    async def admit(self, stimulus: Stimulus) -> Stimulus:
        """Return the stimulus."""
        return stimulus

    async def prepare(self, asked: PrepareCall, checked: CallChecked, taint: str) -> CallChecked:
        """Return the call, or its refusal if it names a node that is not there."""
        if not isinstance(checked, PreparedCall):
            return checked
        try:
            name = checked.entry.tool.node_for(checked.params)
            if name is not None:
                find_node(name, await self._nodes.nodes(), alive=True)
        except Exception as error:  # noqa: BLE001 - whatever a check meets, the call fails and not its session
            return self._dispatcher.refuse(checked, error)
        return checked

    async def settle(self, outcome: ImmediateOutcome, ran_s: float) -> ImmediateOutcome:
        """Return the outcome."""
        return outcome

    def observe(self, fact: SessionFact) -> None:
        """Need no fact."""
