"""What Python runs first in the processes of a private Ray that are no actors: it closes their imports.

Ray starts its agents, and the process that becomes a worker, by plain Python; only variables reach them. This
directory alone is their ``PYTHONPATH``. The environment's own ``sitecustomize`` is run after it.
"""

import os
import sys
from _frozen_importlib_external import PathFinder, SourceFileLoader

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is not loaded yet
_ROOM = os.path.dirname(_HERE)  # noqa: PTH120 - as above


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


_close()
_run_own()
