"""Attempts to leave the sandbox of a command, made as root and as an unprivileged user.

Room: used by ``benchmarks.sandbox`` and ``tests/unit/sandbox/test_command_escapes.py``; not part of the
wheel. Not here: the sandbox itself (sessiontree/sandbox/).
"""
