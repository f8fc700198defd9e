"""What starts an actor's process in place of Ray's ``setup_worker.py``: the same, for our words alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from sessiontree import Runtime, ScriptedModel, SessionTree
from sessiontree.sandbox import RAY_SITE, build_py_executable

pytestmark = pytest.mark.slow
SETUP = Path(ray.__file__).parent / "_private" / "workers" / "setup_worker.py"
PROGRAM = """
import json, os, sys
told = [sys.argv[1:], os.environ.get("SESSIONTREE_ROLE"), os.environ.get("OF_THE_JOB"), os.environ.get("OWN")]
print(json.dumps(told))
"""
ODD = ["--a=b c", "it's", '"', "$(touch odd)", "`touch odd`", "*", "ü\n", "", ";exit 1", "\\"]
OF_RAY = " ray._private.ray_constants\n"
"""What an interpreter that is asked to tells of an import; Ray's own way imports a thousand modules."""
RUNS_S = 120


def start(
    place: Path, words: list[str], *, site: Path | None, **asked: Any
) -> subprocess.CompletedProcess[str]:
    """Start a worker as the raylet does; its program tells its words and variables."""
    program = place / "default_worker.py"
    program.write_text(PROGRAM)
    context = {
        "command_prefix": [],
        "env_vars": {},
        "py_executable": build_py_executable("trial", place, None),
        "override_worker_entrypoint": None,
        "java_jars": [],
        **asked,
    }
    return subprocess.run(
        [
            *(sys.executable, str(SETUP), str(program), *words, "--language=PYTHON"),
            f"--serialized-runtime-env-context={json.dumps(context)}",
        ],
        env={
            **os.environ,
            "OWN": "1",
            "PYTHONPROFILEIMPORTTIME": "1",
            "PYTHONPATH": "" if site is None else str(site),
        },
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUNS_S,
    )


def test_our_words_start_as_ray_starts_them_and_without_ray(tmp_path: Path) -> None:
    """The same arguments to the letter, in the same environment; nothing of them is run by the shell."""
    own, rays = (start(tmp_path, ODD, site=site) for site in (RAY_SITE, None))
    assert own.returncode == rays.returncode == 0, own.stderr
    assert json.loads(own.stdout) == json.loads(rays.stdout) == [ODD, "trial", None, "1"]
    assert OF_RAY in rays.stderr
    assert OF_RAY not in own.stderr
    assert not (tmp_path / "odd").exists()


@pytest.mark.parametrize(
    "asked",
    [
        {"env_vars": {"OF_THE_JOB": "yes"}},
        {"command_prefix": ["OF_THE_JOB=yes"]},
        {"py_executable": f"OF_THE_JOB=yes {sys.executable}"},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_everything_else_is_left_to_ray(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Variables, a prefix, a Python of somebody else's: what Ray makes of them, it makes."""
    own, rays = (start(tmp_path, ["--a"], site=site, **asked) for site in (RAY_SITE, None))
    assert OF_RAY in own.stderr
    assert (own.returncode, own.stdout) == (rays.returncode, rays.stdout)


async def test_ray_s_own_processes_run_our_site(ray_runtime: Runtime, tmp_path: Path) -> None:
    """The raylet, and so all that it starts: imports are closed, and actors start without importing Ray."""
    async with SessionTree(tmp_path, model=ScriptedModel(["done"]), runtime=ray_runtime) as tree:
        assert await tree.main.send("go") == "done"
    own = _raylets_below_us()
    assert own
    for each in own:
        assert f"PYTHONPATH={RAY_SITE}".encode() in (each / "environ").read_bytes().split(b"\0")


def _raylets_below_us() -> list[Path]:
    return [each for each in Path("/proc").iterdir() if each.name.isdigit() and _is_raylet_below_us(each)]


def _is_raylet_below_us(process: Path) -> bool:
    try:
        name, _, rest = (process / "stat").read_text().rpartition(") ")
    except OSError:  # it has ended
        return False
    return name.endswith("(raylet") and int(rest.split()[1]) == os.getpid()
