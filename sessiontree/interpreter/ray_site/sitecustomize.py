"""What Python runs first in the processes of a private Ray that are no actors: it closes their imports.

Ray starts its agents, and the process that becomes a worker, by plain Python; only variables reach them. This
directory alone is their ``PYTHONPATH``. The environment's own ``sitecustomize`` is run after it.
"""

import os
import sys
from _frozen_importlib_external import PathFinder, SourceFileLoader

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is not loaded yet
_ROOM = os.path.dirname(_HERE)  # noqa: PTH120 - as above
_LAUNCHER = os.path.join(os.path.dirname(_ROOM), "sandbox", "launcher.py")  # noqa: PTH118, PTH120 - as above
_SETUP = "/ray/_private/workers/setup_worker.py"
_CONTEXT, _LANGUAGE = "--serialized-runtime-env-context=", "--language=PYTHON"


def _start_worker() -> None:
    """Do at once what ``setup_worker.py`` does after importing Ray, which takes 0.3 s of a processor.

    It has the shell run the words that start an actor's process. Only words of a runtime's own are run here,
    and only where nothing else was asked for; everything else is left to Ray. Source: Ray 2.60,
    ``_private/runtime_env/context.py``.
    """
    words = sys.orig_argv
    context = [word for word in words if word.startswith(_CONTEXT)]
    if len(context) != 1 or _LANGUAGE not in words or not words[1].endswith(_SETUP):
        return
    import json  # noqa: PLC0415 - the other processes of Ray have no use for it here
    import shlex  # noqa: PLC0415

    asked = json.loads(context[0].removeprefix(_CONTEXT))
    python = asked.pop("py_executable", None)
    if isinstance(python, str) and _LAUNCHER in python and not any(asked.values()):
        passed = [word for word in words[2:] if word not in (context[0], _LANGUAGE)]
        os.execvp("bash", ["bash", "-c", f"exec {python} {shlex.join(passed)}"])  # noqa: S606, S607 - as Ray


def _close() -> None:
    """Close the imports of this process, whose site directories are found already."""
    name = "sessiontree.interpreter.import_guard"
    loader = SourceFileLoader(name, os.path.join(_ROOM, "import_guard.py"))  # noqa: PTH118 - as above
    guard = type(sys)(name)
    guard.__file__ = loader.path
    sys.modules[name] = guard
    loader.exec_module(guard)
    guard.close_settled(without=_HERE)


def _run_own() -> None:
    """Run the environment's own module of this name, where it has one."""
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != _HERE])
    if spec is not None and spec.loader is not None:
        module = type(sys)("sitecustomize")
        module.__spec__, module.__file__ = spec, spec.origin
        spec.loader.exec_module(module)


_start_worker()
_close()
_run_own()
