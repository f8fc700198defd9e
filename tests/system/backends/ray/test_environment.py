"""What a host's process has of the program's environment, and what it forgets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError, Runtime

KEYS = {
    "OPENAI_API_KEY": "sk-the-programs-own",
    "AWS_SECRET_ACCESS_KEY": "of-the-clouds",
    "DATABASE_URL": "postgres://user:word@host/db",
    "RAY_my_password": "of-a-cluster",
    "SESSIONTREE_SECRET": "of-a-configuration",
    "XDG_TOKEN": "of-a-desktop",
    "LC_KEY": "of-a-language",
    "CUDA_LICENSE_KEY": "of-a-card",
    "MY_OWN": "of-the-program-too",
}


PROGRAM = '''
import asyncio, os, subprocess, sys
from pathlib import Path
from sessiontree import PermissionTier, Runtime, ScriptedModel, SessionKind, SessionTree, script_call, tool

@tool(tier=PermissionTier.READ_ONLY, kinds=tuple(SessionKind))
def look_around() -> str:
    """Tell every variable of this process: its own, those it began with, those of a child."""
    began = Path("/proc/self/environ").read_bytes().replace(b"\\0", b"\\n").decode()
    own = "\\n".join(f"{name}={value}" for name, value in os.environ.items())
    child = subprocess.run(["/usr/bin/env"], capture_output=True, text=True, check=False).stdout
    return f"{own}\\n---\\n{began}\\n---\\n{child}"

async def main(workspace, state):
    model = ScriptedModel([script_call("look_around"), "seen"])
    late = os.environ.pop("MY_OWN")
    async with Runtime(state + "-first") as first, Runtime(state, pass_env=["MY_OWN"]) as runtime:
        async with SessionTree(workspace, model=model, runtime=first):  # whose Ray the other one shares
            os.environ["MY_OWN"] = late
        async with SessionTree(workspace, model=model, tools=[look_around], runtime=runtime) as tree:
            for kind in ("branch", "worker"):
                child = await tree.main.spawn(kind, "look")
                assert (await child.result()).summary == "seen"
                print(*(each.text for each in child.history() if "---" in each.text))
                print("=====")

asyncio.run(main(*sys.argv[1:]))
'''


@pytest.mark.covers("JAIL10")
@pytest.mark.slow
def test_tools_get_no_key_of_the_program(tmp_path: Path) -> None:
    """Neither a key nor Ray's token; what is harmless is there, and what the owner passes on, even late."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", tmp_path / "workspace", tmp_path / "state"],
        env={**os.environ, **KEYS, "LANG": "C.UTF-8", "TZ": "Europe/Vienna"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    branch, worker, rest = done.stdout.split("=====")
    assert rest.strip() == ""
    for text in (branch, worker):
        assert [name for name, value in KEYS.items() if value in text] == ["MY_OWN"]
        for kept in ("MY_OWN=of-the-program-too", "LANG=C.UTF-8", "TZ=Europe/Vienna", "PATH="):
            assert text.count(kept) >= 2, kept  # a process's title is where it began with others
        tokens = [line for line in text.splitlines() if line.startswith("RAY_AUTH_TOKEN=")]
        assert [line for line in tokens if line != "RAY_AUTH_TOKEN="] == []


@pytest.mark.parametrize(
    ("pass_env", "said"),
    [
        ("HOME", "give names in a list"),
        (["A=B"], "give the name of an environment variable"),
        ([""], "give the name of an environment variable"),
        ([7], "give the name of an environment variable"),
        (["PYTHONPATH"], "Python's own choose code"),
        ({"A": "b"}, "give names in a list"),
    ],
)
def test_names_that_are_none_are_refused(tmp_path: Path, pass_env: Any, said: str) -> None:
    """Before anything starts, with what to write."""
    with pytest.raises(ConfigError, match=said):
        Runtime(tmp_path, pass_env=pass_env)
    assert not list(tmp_path.iterdir())


FORGET = """
import os, sys
from pathlib import Path
from sessiontree.sandbox.launcher import forget_variables
forget_variables(sys.argv[1:])
print(sorted(name for name in os.environ if name in {"A", "BA", "LAST"}))
print(sorted(w.decode() for w in Path("/proc/self/environ").read_bytes().split(b"\\0")
             if w.startswith((b"A=", b"BA=", b"LAST="))))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "left", "shown"),
    [
        (["A"], ["BA", "LAST"], ["A=", "BA=secret", "LAST=secret"]),
        (["LAST", "none"], ["A", "BA"], ["A=secret", "BA=secret", "LAST="]),
        (["BA", "BA"], ["A", "LAST"], ["A=secret", "BA=", "LAST=secret"]),
    ],
)
def test_forgotten_variable_is_shown_by_nobody(names: Sequence[str], left: Any, shown: Any) -> None:
    """Wherever it is: first, last, behind one whose name ends like its own."""
    done = subprocess.run(
        [sys.executable, "-c", FORGET, *names],
        env={"A": "secret", "BA": "secret", "LAST": "secret"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [str(left), str(shown)]
