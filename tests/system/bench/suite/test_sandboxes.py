"""Samples whose commands run in containers, each of its own image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree import App, SandboxSpec, ScriptedModel, script_call
from sessiontree.bench import Attempt, Sample
from tests.system.bench.suite_fixtures import Heard, ended, suite
from tests.unit.sandbox.container_fixtures import StubEngine, engine

__all__ = ["engine"]


async def run_command(attempt: Attempt[str]) -> str:
    """Have the model run its command."""
    return await attempt.tree.main.send(attempt.sample.input)


def found(attempt: Attempt[str]) -> bool:
    """Whether the workspace has what the image has and the command wrote."""
    return bool((attempt.workspace / "found").read_text() == attempt.sample.target)


MODEL = ScriptedModel([[script_call("exec", command="cat which >found")], "done"])
SAMPLES = [
    Sample("a", "go", "image a", {"image": "bench/a"}),
    Sample("b", "go", "image b", {"image": "bench/b"}),
]


@pytest.fixture
def images(engine: StubEngine) -> StubEngine:
    """An engine with an image for each sample."""
    for name in ("a", "b"):
        place = engine.image(f"bench/{name}") / "testbed"
        place.mkdir()
        (place / "which").write_text(f"image {name}")
    return engine


@pytest.mark.slow
async def test_each_sample_has_the_image_that_its_metadata_names(images: StubEngine, tmp_path: Path) -> None:
    """The suite's spec says the rest; scorers find in the workspace what was in the image."""
    spec = images.spec(workdir="/testbed", fill=True)
    one = suite(samples=SAMPLES, solver=run_command, scorers=found, sandbox=spec, model=MODEL)
    assert (await ended(one, tmp_path / "run")).passed == 2
    assert images.containers == []


@pytest.mark.slow
async def test_function_gives_the_container_and_a_tree_of_its_own_wins(
    images: StubEngine, tmp_path: Path
) -> None:
    """A function's spec is taken as it is."""

    def place(attempt: Attempt[Any]) -> SandboxSpec:
        image = str(attempt.sample.metadata["image"])
        return images.spec(image=image, workdir="/testbed", fill=True)

    options: dict[str, Any] = {"solver": run_command, "scorers": found, "model": MODEL}
    one = suite(samples=SAMPLES, sandbox=place, **options)
    assert (await ended(one, tmp_path / "one")).passed == 2
    own = App(sandbox=images.spec(image="bench/a", workdir="/testbed", fill=True))
    two = suite(samples=SAMPLES, sandbox=place, tree=own, **options)
    assert (await ended(two, tmp_path / "two")).passed == 1


@pytest.mark.slow
async def test_image_that_is_no_name_is_the_samples_error(images: StubEngine, tmp_path: Path) -> None:
    """Nothing of it reaches the engine."""
    sample = Sample("bad", "go", "", {"image": "--privileged"})
    one = suite(samples=[sample], solver=run_command, scorers=found, sandbox=images.spec(), model=MODEL)
    results = await one.run(tmp_path / "run", backend="local", progress=Heard())
    assert "is not the name of an image" in str(results.to_arrow().to_pylist())
    assert images.asked("create") == images.asked("run") == []
