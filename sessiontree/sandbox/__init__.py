"""Confinement: the launcher of read-only processes with its self-test, and the sandbox of commands.

Floor 3. A process that the launcher starts can change files only in the directories it was given, in every
thread, library and subprocess. A command changes files only in its workspace, reaches no network and no other
process, and its resources are limited. The kernel enforces both.
Not here: which processes are confined and where state is kept (``backends``), or what a tool may do
(``policy``). Code that holds a handle to something outside, such as an actor system or a socket, can ask it
to act. Confining files does not prevent that.
"""

from sessiontree.sandbox.commands.command_bounds import Bounds
from sessiontree.sandbox.commands.command_shell import CommandShell
from sessiontree.sandbox.commands.kernel_support import (
    CommandConfinement,
    Level,
    available_level,
    command_confinement,
    level_in_force,
)
from sessiontree.sandbox.commands.speech_program import speak_confined, speech_program
from sessiontree.sandbox.commands.unconfined_shell import UnconfinedShell
from sessiontree.sandbox.containers.container_shell import ContainerShell
from sessiontree.sandbox.jobs.session_jobs import JobShell, JobTable, SessionJobs
from sessiontree.sandbox.py_executable import RAY_SITE, Jail, probe, py_executable
from sessiontree.sandbox.resources.command_turns import CommandTurns, SessionTurns
from sessiontree.sandbox.self_test import SelfTest, prepare_canaries, self_test

__all__ = [
    "RAY_SITE",
    "Bounds",
    "CommandConfinement",
    "CommandShell",
    "CommandTurns",
    "ContainerShell",
    "Jail",
    "JobShell",
    "JobTable",
    "Level",
    "SelfTest",
    "SessionJobs",
    "SessionTurns",
    "UnconfinedShell",
    "available_level",
    "command_confinement",
    "level_in_force",
    "prepare_canaries",
    "probe",
    "py_executable",
    "self_test",
    "speak_confined",
    "speech_program",
]
