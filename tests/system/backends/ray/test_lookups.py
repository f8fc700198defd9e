"""Installed code looks up nothing in a workspace, however it asks; seen at Python's own finder of files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PATIENCE_S = 240.0
SETTINGS_OF_PYTHON = vars(sysconfig)["_get_sysconfigdata_name"]()
OPTIONAL = f"""
logfire chardet pandas polars torch datasets tensorflow lance habana_frameworks tzdata jax cupy
duckdb pyspark simplejson ujson orjson brotli zstandard socks h2 hpack uvloop trio curio winloop
IPython ipywidgets setproctitle psutil boto3 botocore s3fs gcsfs adlfs aiohttp grpc orjson_plugin
email_validator rapidjson cchardet lxml html5lib sklearn transformers sentence_transformers gradio
fastapi uvicorn colorama debugpy memray vertexai tracerite olefile defusedxml numba scipy xarray
dask cloudpickle5
{SETTINGS_OF_PYTHON}
""".split()
"""Names that installed code may ask for, and that are not installed; a file of each is planted."""
SHORT = "sysconfig pyarrow lancedb requests pydantic_graph opentelemetry.context"
FULL = f"""
{SHORT} ray ray.util.state pydantic_ai.models.anthropic pydantic_ai.models.google
pydantic_ai.models.mistral openai anthropic google.genai mistralai huggingface_hub tokenizers
safetensors safetensors.numpy matplotlib.pyplot PIL.Image httpx httpx2 rich.pretty typer jsonschema
fsspec tqdm.auto opentelemetry.sdk.trace pygments.lexers bs4 tenacity
opentelemetry.exporter.otlp.proto.http.trace_exporter pydantic.mypy hypothesis yaml tree_sitter
tiktoken anyio pydantic_ai.models.openai
"""

PROGRAM = """
import sessiontree

import asyncio
import importlib
import importlib.metadata
import json
import os
import pickle
import pkgutil
import sys
import sysconfig
import warnings
import zoneinfo
from importlib.machinery import FileFinder

HERE, SEEN = os.getcwd(), []
find_spec = FileFinder.find_spec


def installed(file):
    return file.startswith((os.path.dirname(os.__file__), sys.prefix, PACKAGE)) or "<frozen" in file


def watched(self, name, target=None):
    frame = sys._getframe(1)
    skipped = ("importlib", "pkgutil", "sessiontree.interpreter.import_guard", "_frozen_importlib", "_pickle")
    while frame is not None and frame.f_globals.get("__name__", "").startswith(skipped):
        frame = frame.f_back
    file = "" if frame is None else frame.f_code.co_filename
    if os.path.abspath(self.path).startswith(HERE) and installed(file):
        SEEN.append((name, file, frame.f_lineno))
    return find_spec(self, name, target)


PACKAGE = os.path.dirname(sessiontree.__file__)
FileFinder.find_spec = watched
warnings.simplefilter("ignore")


def exercise(names):
    for name in names:
        importlib.import_module(name)
    sysconfig.get_config_vars()
    for group in ("pydantic", "inspect_ai"):
        assert not [each for each in importlib.metadata.entry_points(group=group) if each.name == "x"]
    import pyarrow
    pyarrow.array([1, 2]).to_pylist()
    pyarrow.table({"a": [1]}).to_pylist()
    try:
        zoneinfo.ZoneInfo("Not/There")
    except zoneinfo.ZoneInfoNotFoundError:
        pass
    import lancedb.dependencies
    for name in dir(lancedb.dependencies):
        try:
            getattr(getattr(lancedb.dependencies, name), "DataFrame", None)
        except ModuleNotFoundError:
            pass
    list(pkgutil.iter_modules())


class Own:
    def __reduce__(self):
        return importlib.import_module, ("mine",)


async def work():
    from sessiontree import FunctionModel, SessionTree, script_call

    def reply(request):
        if request.turn == 1 and request.kind == "main":
            return script_call("memory_store", text="hay")
        return "ok"

    given = dict(model=FunctionModel(reply), backend=os.environ["BACKEND"], state_dir="../state")
    async with SessionTree(".", approvals="auto", **given) as tree:
        assert await tree.main.send("go") == "ok"
        assert (await (await tree.main.spawn("worker", "look")).result()).summary == "ok"


if __name__ == "__main__":
    exercise(os.environ["MODULES"].split())
    asyncio.run(work())
    import mine
    assert importlib.import_module("mine_by_call").TEXT == "by call"
    assert importlib.util.find_spec("mine_too") is not None
    assert pickle.loads(b"cmine_too\\nTEXT\\n.") == "pickled"
    print("SEEN", json.dumps([each for each in SEEN if each[0] != "mine_too"]))
"""


def looked_up(place: Path, backend: str, modules: str, *words: str) -> tuple[list[object], list[str]]:
    """Run the program among plants; return what installed code looked up, and the plants that ran."""
    workspace, ran = place / "workspace", place / "ran"
    workspace.mkdir(parents=True)
    for name in OPTIONAL:
        (workspace / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r} + '\\n')\n")
    for name, text in (("mine", ""), ("mine_by_call", "TEXT = 'by call'"), ("mine_too", "TEXT = 'pickled'")):
        (workspace / f"{name}.py").write_text(text)
    info = workspace / "x-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1\n")
    groups = ("pydantic", "sessiontree.tools", "opentelemetry_context", "inspect_ai", "fsspec.specs")
    (info / "entry_points.txt").write_text("".join(f"[{group}]\nx = chardet:plugin\n" for group in groups))
    (workspace / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, *(word.replace("PROGRAM", PROGRAM) for word in words)],
        cwd=workspace,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            "MODULES": modules,
            "BACKEND": backend,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen: list[object] = json.loads(done.stdout.partition("SEEN ")[2])
    return seen, ran.read_text().split() if ran.exists() else []


@pytest.mark.slow
@pytest.mark.covers("HOS3")
def test_installed_code_looks_up_nothing_in_a_workspace(tmp_path: Path) -> None:
    """By statement, call, probe or compiled code; the program's own calls and pickles find its modules."""
    assert len(OPTIONAL) >= 60
    assert looked_up(tmp_path, "local", SHORT, "program.py") == ([], [])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["local", "ray"])
@pytest.mark.parametrize(
    "words", [["program.py"], ["-c", "PROGRAM"], ["-m", "program"]], ids=["script", "code", "module"]
)
def test_no_dependency_looks_up_anything_in_a_workspace(
    tmp_path: Path, backend: str, words: list[str]
) -> None:
    """Every optional import of every dependency, however Python was started."""
    assert looked_up(tmp_path, backend, FULL, *words) == ([], [])
