"""Reads a trajectory with Harbor's models, and its edges with those of verifiers; prints what it found.

Runs in the environment of ``make setup-formats``: ``python formats_program.py FILE``.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

from harbor.models.trajectories import Trajectory
from harbor.utils.trajectory_validator import TrajectoryValidator

EDGES_KEY = "ai.prime.acp/semantic-edges-v1"


def load_edges() -> ModuleType:
    """Return the module of edges by its file: its package imports a whole harness."""
    found = importlib.util.find_spec("harbor")
    assert found is not None
    assert found.origin is not None
    place = Path(found.origin).parents[1] / "verifiers" / "v1" / "semantic.py"
    spec = importlib.util.spec_from_file_location("semantic", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["semantic"] = module
    spec.loader.exec_module(module)
    return module


def main(place: Path) -> None:
    """Read one file."""
    validator = TrajectoryValidator()
    is_valid = validator.validate(place)
    found = json.loads(place.read_text("utf-8"))
    edges = load_edges()
    assert edges.ACP_SEMANTIC_EDGES_METADATA_KEY == EDGES_KEY
    told = {"valid": is_valid, "errors": validator.errors, "sessions": 0, "edges": 0}
    if is_valid:
        waiting = [Trajectory.model_validate(found)]
        while waiting:
            told["sessions"] += 1
            waiting += waiting.pop().subagent_trajectories or []
        told["edges"] = len(edges.SemanticEdgeSet.model_validate(found["extra"][EDGES_KEY]).edges)
    sys.stdout.write(json.dumps(told))


main(Path(sys.argv[1]))
