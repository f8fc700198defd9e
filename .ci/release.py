"""Build the release into ``dist/``, try it as its users will get it, and write what it is made of.

``python .ci/release.py [PYTHON…]``, each a version or the path of an interpreter; 3.11 and 3.14 if none is
named. ``make release`` makes the environment that this needs (uv and cyclonedx-py).

1. sdist and wheel are built from the checkout with the locked builder. The wheel that the sdist builds must
   be the same, byte for byte.
2. For each interpreter the wheel is installed in a fresh environment: bare, with each extra alone, and with
   all that go together; the sdist bare. Nothing is locked there: users get what the indexes hold that day. In
   each the requirements must agree, the extra's modules load, a scripted tree run on the local backend, and
   the command say its version and what it finds with ``doctor``.
3. ``dist/sessiontree-….cdx.json`` (CycloneDX) lists what was in the environment with everything.

The exit code is 1 where anything failed. An interpreter that is missing fails the release before it begins.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
TOOLS = CHECKOUT / ".venv-release" / "bin"
PYTHONS = ("3.11", "3.14")
MAX_S = 900
APART = frozenset({"inspect"})
"""Pins what other extras want newer, so it is tried alone."""
MODULES = {
    "openai": ("openai", "pydantic_ai.models.openai", "sessiontree.models.providers.openai_client"),
    "anthropic": ("anthropic", "pydantic_ai.models.anthropic"),
    "google": ("google.genai", "pydantic_ai.models.google"),
    "mistral": ("mistralai", "pydantic_ai.models.mistral"),
    "all": ("openai", "anthropic", "google.genai", "mistralai"),
    "otel": ("sessiontree.runtime.telemetry.otlp_export",),
    "plot": ("sessiontree.bench.results.plots",),
    "serve": ("sessiontree.serve.listen",),
    "minilm": ("sessiontree.memory.minilm",),
    "survey": ("sessiontree.survey.source.symbols", "tree_sitter_swift"),
    "testing": ("sessiontree.testing.strategies",),
    "notebook": ("sessiontree.notebook.widget",),
    "browser": ("playwright.async_api", "axe_playwright_python"),
    "terminal": ("pyte",),
    "programs": ("pydantic_monty",),
    "acp": ("acp",),
    "mcp": ("mcp",),
    "inspect": ("sessiontree.bench.adapters.inspect_solver",),
}
"""What each extra is for; a new one is added here."""
TRIAL = """
import asyncio, importlib, sys, tempfile
from sessiontree import ScriptedModel, SessionTree

async def main():
    with tempfile.TemporaryDirectory() as place:
        model = ScriptedModel(["It works."])
        async with SessionTree(place, model=model, state_dir=f"{place}.state", backend="local") as tree:
            assert (await tree.main.send("Hello")) == "It works.", "another reply"

for module in sys.argv[1:]:
    importlib.import_module(module)
asyncio.run(main())
"""


class ReleaseFailed(Exception):
    """A step failed; the text says which, and what the program printed."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One installation to try.

    Attributes:
        python: The interpreter.
        artifact: The wheel or the sdist.
        extras: What is installed with it, sorted.
    """

    python: str
    artifact: Path
    extras: tuple[str, ...] = ()

    def __str__(self) -> str:
        kind = "wheel" if self.artifact.suffix == ".whl" else "sdist"
        extras = "every extra" if len(self.extras) > 1 else "".join(self.extras)
        return f"{self.python} {kind} {extras or 'bare'}"


def run(*command: str | Path, place: Path = CHECKOUT) -> str:
    """Run a program that must succeed; return what it printed.

    Raises:
        ReleaseFailed: it could not be started, ended with another code or took longer than ``MAX_S``.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**kept, "UV_PYTHON_DOWNLOADS": "never", "XDG_STATE_HOME": str(place)}
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAX_S,
            check=True,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise ReleaseFailed(str(failure)) from failure
    except subprocess.CalledProcessError as failure:
        shown = " ".join(str(word) for word in command[:6])
        raise ReleaseFailed(f"{shown} … ended with {failure.returncode}:\n{failure.output}") from failure
    return done.stdout


def find_missing(pythons: tuple[str, ...]) -> list[str]:
    """Return the interpreters that are not on this machine."""
    missing = []
    for python in pythons:
        try:
            run(TOOLS / "uv", "python", "find", "--no-project", python)
        except ReleaseFailed:
            missing.append(python)
    return missing


def build(dist: Path) -> tuple[Path, Path]:
    """Build wheel and sdist, and the wheel of the sdist; return the first two.

    Raises:
        ReleaseFailed: a build failed, or the sdist builds another wheel.
    """
    shutil.rmtree(dist, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "-d", dist, "-t", "sdist", "-t", "wheel")
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as place:
        shutil.unpack_archive(sdist, place, filter="data")
        (source,) = Path(place).iterdir()
        run(sys.executable, "-m", "hatchling", "build", "-d", place, "-t", "wheel", place=source)
        if not filecmp.cmp(wheel, Path(place, wheel.name), shallow=False):
            raise ReleaseFailed("the wheel that the sdist builds differs from the checkout's")
    return wheel, sdist


def plan(pythons: tuple[str, ...], wheel: Path, sdist: Path, extras: list[str]) -> Iterator[Trial]:
    """Yield every trial; those of one interpreter follow each other, all extras together last."""
    for python in pythons:
        yield Trial(python, sdist)
        yield Trial(python, wheel)
        yield from (Trial(python, wheel, (extra,)) for extra in extras)
        yield Trial(python, wheel, tuple(extra for extra in extras if extra not in APART))


def try_out(trial: Trial, place: Path, version: str) -> float:
    """Install in a fresh environment and use it; return the seconds of the installation.

    Raises:
        ReleaseFailed: the installation or one of the uses failed.
    """
    began = time.monotonic()
    venv = place / "venv"
    run(TOOLS / "uv", "venv", "--quiet", "--no-project", "--python", trial.python, venv)
    wanted = f"{trial.artifact}[{','.join(trial.extras)}]" if trial.extras else str(trial.artifact)
    python = venv / "bin" / "python"
    run(TOOLS / "uv", "pip", "install", "--quiet", "--python", python, wanted)
    run(TOOLS / "uv", "pip", "check", "--python", python)
    installed_s = time.monotonic() - began
    modules = [module for extra in trial.extras for module in MODULES[extra]]
    run(python, "-I", "-W", "error::ImportWarning", "-c", TRIAL, *modules, place=place)
    command = venv / "bin" / "sessiontree"
    if version not in run(command, "--version", place=place):
        raise ReleaseFailed("the command says another version")
    run(command, "doctor", "--json", place=place)
    return installed_s


def attempt(trial: Trial, version: str, bill: Path | None) -> bool:
    """Try one installation, print a line about it, and return whether it works.

    Args:
        trial: What to install.
        version: What the command must say.
        bill: Where to write what is installed; None = nowhere.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sessiontree-release-") as place:
        try:
            installed_s = try_out(trial, Path(place), version)
            if bill is not None:
                write_bill(Path(place, "venv", "bin", "python"), bill)
        except ReleaseFailed as failure:
            print(f"{trial}: FAILED: {failure}", flush=True)
            return False
    used_s = time.monotonic() - began - installed_s
    print(f"{trial}: installed in {installed_s:.1f} s, used for {used_s:.1f} s", flush=True)
    return True


def write_bill(python: Path, bill: Path) -> None:
    """Write the CycloneDX list of what an environment holds, the project as its root."""
    options = ("--output-reproducible", "--output-format", "JSON", "--pyproject", CHECKOUT / "pyproject.toml")
    run(TOOLS / "cyclonedx-py", "environment", *options, "--output-file", bill, python)


def main(*words: str) -> int:
    """Build, try and list; return the exit code."""
    pythons = words or PYTHONS
    if missing := find_missing(pythons):
        print(f"no Python {', '.join(missing)} here: install it, or name others: make release PYTHONS='…'")
        return 1
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    version, extras = project["version"], sorted(project["optional-dependencies"])
    if unknown := set(extras) ^ set(MODULES):
        print(f"MODULES of .ci/release.py and the extras of pyproject.toml differ in {sorted(unknown)}")
        return 1
    dist = CHECKOUT / "dist"
    try:
        wheel, sdist = build(dist)
    except ReleaseFailed as failure:
        print(f"build: FAILED: {failure}")
        return 1
    for artifact in (wheel, sdist):
        print(f"{artifact.name}: {artifact.stat().st_size / 1000:.0f} kB", flush=True)
    bill = dist / f"sessiontree-{version}.cdx.json"
    trials = list(plan(pythons, wheel, sdist, extras))
    with ThreadPoolExecutor(max_workers=2) as pool:
        bills = [bill if trial is trials[-1] else None for trial in trials]
        worked = list(pool.map(attempt, trials, [version] * len(trials), bills))
    print(f"{sum(worked)} of {len(worked)} installations work")
    return 0 if all(worked) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
