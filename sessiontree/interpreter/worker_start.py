"""Starts an actor's process at once, as Ray's ``setup_worker.py`` does after 0.3 s of importing all of Ray.

It has the shell run the command line that starts the process. It runs before any package can be imported, in
the processes of a private Ray (``ray_site``). Source: Ray 2.60, ``_private/runtime_env/context.py``.
"""

import json
import os
import shlex
from collections.abc import Sequence
from typing import Final

LAUNCHER: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "sandbox", "launcher.py")  # noqa: PTH118, PTH120 - pathlib costs more than the rest
_CONTEXT: Final = "--serialized-runtime-env-context="
_LANGUAGE: Final = "--language=PYTHON"


def start(words: Sequence[str]) -> None:
    """Replace this process by the requested one, if that is one of a runtime's own and needs nothing else.

    Args:
        words: Arguments of ``setup_worker.py``. If this function returns, Ray handles the request.
    """
    context = [word for word in words if word.startswith(_CONTEXT)]
    if len(context) != 1 or _LANGUAGE not in words:
        return
    asked = json.loads(context[0].removeprefix(_CONTEXT))
    python = asked.pop("py_executable", None)
    if isinstance(python, str) and LAUNCHER in python and not any(asked.values()):
        passed = [word for word in words if word not in (context[0], _LANGUAGE)]
        os.execvp("bash", ["bash", "-c", f"exec {python} {shlex.join(passed)}"])  # noqa: S606, S607 - as Ray does
