"""Confining a whole process: the launcher of read-only processes, its level, and the test of it.

Room: floor 3. What is promised: a process started through the launcher can't change a file outside the
directories it was given, whatever thread, library or subprocess of it tries; the kernel refuses.
Not here: who is confined and where state lies (actors), or what a tool may do (policy). Code that holds a
handle to something outside, an actor system or a socket, may ask that to act: no jail of files contains it.
"""

from sessiontree.sandbox.level import Level, available_level, level_in_force
from sessiontree.sandbox.py_executable import Jail, probe, py_executable
from sessiontree.sandbox.self_test import SelfTest, self_test
from sessiontree.sandbox.victims import prepare_victims

__all__ = [
    "Jail",
    "Level",
    "SelfTest",
    "available_level",
    "level_in_force",
    "prepare_victims",
    "probe",
    "py_executable",
    "self_test",
]
