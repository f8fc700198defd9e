"""What Python runs first in the processes of a private Ray that are no actors: it closes their imports.

Ray starts its agents, and the process that becomes a worker, by plain Python; only variables reach them. This
directory alone is their ``PYTHONPATH``. The environment's own ``sitecustomize`` is run after it.
"""

import os
import sys
from _frozen_importlib_external import PathFinder, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:  # types would be the first import that costs something
    from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is not loaded yet
_ROOM = os.path.dirname(_HERE)  # noqa: PTH120 - as above
_SETUP = "/ray/_private/workers/setup_worker.py"


def _load(name: str) -> "ModuleType":
    """Run a file of the room, and return it as a module."""
    loader = SourceFileLoader(f"sessiontree.interpreter.{name}", os.path.join(_ROOM, f"{name}.py"))  # noqa: PTH118 - as above
    module = type(sys)(loader.name)
    module.__file__ = loader.path
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def _run_own() -> None:
    """Run the environment's own module of this name, where it has one."""
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != _HERE])
    if spec is not None and spec.loader is not None:
        module = type(sys)("sitecustomize")
        module.__spec__, module.__file__ = spec, spec.origin
        spec.loader.exec_module(module)


if len(sys.orig_argv) > 1 and sys.orig_argv[1].endswith(_SETUP):
    _load("worker_start").start(sys.orig_argv[2:])
_load("import_guard").close_settled(without=_HERE)
_run_own()
