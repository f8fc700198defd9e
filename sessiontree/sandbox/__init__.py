"""Confining what runs: the launcher of read-only processes and its test, and the sandbox of commands.

Room: floor 3. What is promised: a process started through the launcher can't change a file outside the
directories it was given, whatever thread, library or subprocess of it tries; and a command changes files of
its workspace alone, reaches no network and no other process, and is bounded in all it uses. The kernel
refuses.
Not here: who is confined and where state lies (actors), or what a tool may do (policy). Code that holds a
handle to something outside, an actor system or a socket, may ask that to act: no jail of files contains it.
"""

from sessiontree.sandbox.bounds import Bounds
from sessiontree.sandbox.command_kernel import CommandConfinement, command_confinement
from sessiontree.sandbox.command_shell import CommandShell
from sessiontree.sandbox.level import Level, available_level, level_in_force
from sessiontree.sandbox.py_executable import RAY_SITE, Jail, probe, py_executable
from sessiontree.sandbox.self_test import SelfTest, self_test
from sessiontree.sandbox.victims import prepare_victims

__all__ = [
    "RAY_SITE",
    "Bounds",
    "CommandConfinement",
    "CommandShell",
    "Jail",
    "Level",
    "SelfTest",
    "available_level",
    "command_confinement",
    "level_in_force",
    "prepare_victims",
    "probe",
    "py_executable",
    "self_test",
]
