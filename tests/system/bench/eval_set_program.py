"""An eval set of three tasks whose samples note that they were solved, for the runner of eval sets.

``DEATHS`` in the working directory names how many workers of the task ``mortal`` kill themselves at its third
sample. Each solved sample appends its task and id to ``SOLVED``. If there is a pipe ``GO``, a worker says
that it has begun, and waits until somebody has the pipe open for writing.
"""

import os
import signal
from pathlib import Path

from inspect_ai import Task, eval_set, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import match
from inspect_ai.solver import Generate, Solver, TaskState, solver

SOLVED = Path.cwd() / "SOLVED"
DEATHS = Path.cwd() / "DEATHS"
GO = Path.cwd() / "GO"


@solver
def note(name: str) -> Solver:
    """Note each sample; the third one of a mortal task may be its worker's last."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if GO.exists():
            (Path.cwd() / f"begun-{name}").touch()
            os.close(os.open(GO, os.O_RDONLY))
        left = int(DEATHS.read_text()) if name == "mortal" and DEATHS.exists() else 0
        if state.sample_id == 3 and left:
            DEATHS.write_text(str(left - 1))
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "faulty" and state.sample_id == 2:
            raise RuntimeError("this sample can't be solved")
        with SOLVED.open("a") as file:
            file.write(f"{name} {state.sample_id} {state.epoch}\n")
        state.output = ModelOutput.from_content("mockllm/model", "right")
        return state

    return solve


def made(name: str) -> Task:
    """Return a task of five samples."""
    samples = [Sample(input=f"{name} {number}", target="right") for number in range(1, 6)]
    return Task(dataset=samples, solver=note(name), scorer=match(location="any"), name=name)


@task
def mortal() -> Task:
    """Loses workers."""
    return made("mortal")


@task
def plain() -> Task:
    """Goes well."""
    return made("plain")


@task
def faulty() -> Task:
    """Has a sample that ends in an error."""
    return made("faulty")


if __name__ == "__main__":
    eval_set(
        [mortal(), plain(), faulty()],
        log_dir="never-used",
        model="mockllm/model",
        epochs=2,
        max_samples=1,
        log_buffer=1,
    )
