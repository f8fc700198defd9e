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
    command_confinement,
    detect_level,
    read_level_in_force,
)
from sessiontree.sandbox.commands.speech_program import find_speech_program, speak_confined
from sessiontree.sandbox.commands.unconfined_shell import UnconfinedShell
from sessiontree.sandbox.containers.container_shell import ContainerShell
from sessiontree.sandbox.jobs.session_jobs import JobShell, JobTable, SessionJobs
from sessiontree.sandbox.py_executable import RAY_SITE, Jail, build_py_executable, probe
from sessiontree.sandbox.resources.command_turns import CommandTurns, SessionTurns
from sessiontree.sandbox.self_test import SelfTest, prepare_canaries, run_self_test

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
    "build_py_executable",
    "command_confinement",
    "detect_level",
    "find_speech_program",
    "prepare_canaries",
    "probe",
    "read_level_in_force",
    "run_self_test",
    "speak_confined",
]
