"""The manifest for KubeRay: its fields have the names and types of KubeRay's own definition of a RayJob.

They were taken once from the definition that ``rayjob_fields.json`` names. Nothing here needs Kubernetes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

from sessiontree.bench.run.runner import run_blocking
from sessiontree.bench.suite.suite_loader import load_suite

MANIFEST = Path(__file__).parents[3] / "docs" / "cluster" / "rayjob.yaml"
FIELDS: dict[str, Any] = json.loads(Path(__file__).with_name("rayjob_fields.json").read_text("utf-8"))
TYPES: dict[str, str] = FIELDS["types"]
PYTHON = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "integer or string": (int, str),
}


def values(given: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path of every value, as the table writes it, and the value."""
    if path:
        yield path, given
    if isinstance(given, dict):
        is_open = f"{path}.*" in TYPES
        for name, value in given.items():
            yield from values(value, f"{path}.*" if is_open else f"{path}.{name}".removeprefix("."))
    elif isinstance(given, list):
        for value in given:
            yield from values(value, f"{path}[]")


def faults(manifest: Any) -> list[str]:
    """Return what in a manifest KubeRay's definition does not allow; metadata is Kubernetes's own."""
    found = []
    for path, value in values({**manifest, "metadata": {}}):
        wanted = PYTHON.get(TYPES.get(path, ""), ())
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            found.append(f"{path}: {TYPES.get(path, 'no such field')}, not {value!r}")
        if isinstance(value, dict):
            found += [
                f"{path} lacks {name}" for name in FIELDS["required"].get(path, ()) if name not in value
            ]
    return found


def manifest() -> Any:
    """Return our manifest."""
    return yaml.safe_load(MANIFEST.read_text("utf-8"))


def test_manifest_has_the_fields_of_the_definition() -> None:
    """Names, types and required fields fit, and the table names no field that the manifest does not use."""
    ours = manifest()
    assert faults(ours) == []
    assert {path for path, _ in values({**ours, "metadata": {}})} == set(TYPES)
    kind = FIELDS["crd"].partition(".")[2]
    assert (ours["kind"], ours["apiVersion"]) == ("RayJob", f"{kind}/{FIELDS['version']}")


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (("spec",), "backOffLimit", 3),
        (("spec",), "backoffLimit", "3"),
        (("spec", "rayClusterSpec", "headGroupSpec", "rayStartParams"), "num-cpus", 2),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0), "maxReplicas", None),
        (("spec",), "shutdownAfterJobFinishes", 1),
    ],
)
def test_fault_in_a_manifest_is_found(place: tuple[str | int, ...], name: str, value: object) -> None:
    """A misspelt field, a value of another type and a field that is missing are all named."""
    altered = there = deepcopy(manifest())
    for each in place:
        there = there[each]
    there[name] = value
    if value is None:
        del there[name]
    assert len(faults(altered)) == 1


def test_suite_of_the_page_runs(tmp_path: Path) -> None:
    """The suite that the recipe submits is scored, here in one process."""
    suite = load_suite(f"{MANIFEST.with_name('arithmetic.py')}:suite")
    results = run_blocking(suite, tmp_path / "run", {"backend": "local", "limit": 4})
    assert results.to_arrow().column("passed").to_pylist() == [True] * 4


def test_manifest_is_protected_and_of_this_release() -> None:
    """The cluster asks for a token, and runs the release of Ray that is tested here."""
    cluster = manifest()["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["rayVersion"] == ray.__version__
