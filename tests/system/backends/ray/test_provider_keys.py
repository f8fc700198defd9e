"""Keys reach the gateway's process alone, and memory its own: no other process and no file holds one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.memory.vector_server_fakes import serving

MARK = "sEnTiNeL9xQ4"
"""Is in every planted secret, and nowhere else."""
PLANTED = {
    "OPENAI_API_KEY": "used by a model",
    "CONFIGURED_KEY": "used by a model of a configuration, under a name that says nothing",
    "SESSIONTREE_OWN_KEY": "used by a model, under a name that looks harmless",
    "EMBEDDER_KEY": "used by memory",
    "OWN_TOKEN": "read by a model that the program made itself",
    "ANTHROPIC_API_KEY": "not used",
    "ANTHROPIC_AUTH_TOKEN": "not used",
    "OPENAI_CUSTOM_HEADERS": "not used",
    "AWS_SECRET_ACCESS_KEY": "not used",
    "HTTPS_PROXY_PASSWORD": "not used",
    "DATABASE_URL": "not used",
    "OTEL_EXPORTER_OTLP_HEADERS": "not used: stays in the program",
}
SECRETS = {name: f"sk-{MARK}-{number:02}" for number, name in enumerate(PLANTED)}
GIVEN = f"sk-{MARK}-given-in-code"
STORED = f"sk-{MARK}-option-of-memory"
OF_MODELS = {SECRETS[name] for name in ("OPENAI_API_KEY", "CONFIGURED_KEY", "SESSIONTREE_OWN_KEY")} | {GIVEN}

PROGRAM = '''
import asyncio, json, os, re, subprocess, sys, time
from pathlib import Path
import numpy
from sessiontree import AgentConfig, AgentSpec, AsyncFunctionModel, HTTPSettings, MemorySettings
from sessiontree import PermissionTier, ProviderModel, Runtime, SessionKind, SessionTree, ToolContext, tool
from sessiontree.backends.ray.client.key_server import KEYS_SOCKET, fetch_key, fetch_options, take_variables
from sessiontree.sandbox.process_tree import list_children
from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider

MARK, GIVEN, STORED = (os.environ.pop(name) for name in ("MARK", "GIVEN", "STORED"))
PLANTED = re.compile(rb"sk-" + MARK.encode() + rb"-[0-9a-z-]+")
LIBRARIES = {"pydantic_ai", "openai", "anthropic", "google.genai", "mistralai", "httpx2"}
PAGE = os.sysconf("SC_PAGE_SIZE")

def planted_in(data):
    """Which of the secrets some bytes hold."""
    if MARK.encode() not in data:
        return set()
    return {found.decode() for found in PLANTED.findall(data)} or {"part of one"}

def resident(first, last, pages):
    """Yield places and lengths of those pages of a mapping that have ever been touched."""
    flags = numpy.frombuffer(os.pread(pages, (last - first) // PAGE * 8, first // PAGE * 8), numpy.uint64)
    touched = numpy.flatnonzero(flags >> numpy.uint64(62))
    for run in numpy.split(touched, numpy.flatnonzero(numpy.diff(touched) > 1) + 1):
        if len(run):
            yield first + int(run[0]) * PAGE, len(run) * PAGE

def remembered(pid):
    """Which of the secrets are in the writable memory of a process; None if it can't be read."""
    found = set()
    try:
        memory, pages = (os.open(f"/proc/{pid}/{name}", os.O_RDONLY) for name in ("mem", "pagemap"))
    except OSError:
        return None
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        place, rights, *_ = line.split()
        if rights.startswith("rw"):
            for at, length in resident(*(int(each, 16) for each in place.split("-")), pages):
                try:
                    found |= planted_in(os.pread(memory, length, at))
                except OSError:
                    pass  # it was given back meanwhile
    os.close(memory)
    os.close(pages)
    return sorted(found)

def everybody_below(pid):
    for child in list_children(pid):
        yield child
        yield from everybody_below(child)

@tool(tier=PermissionTier.READ_ONLY, kinds=tuple(SessionKind))
def look_around() -> str:
    """Tell which libraries of providers this process has loaded, and what its child has; leave one behind."""
    subprocess.Popen(["/bin/sleep", "1000"])
    child = subprocess.run(["/usr/bin/env"], capture_output=True, text=True).stdout
    return json.dumps([sorted(LIBRARIES & set(sys.modules)), [*os.environ], child])

@tool(tier=PermissionTier.READ_ONLY, kinds=tuple(SessionKind))
def stay(ctx: ToolContext) -> str:
    """Wait until the file `enough` exists."""
    while not (ctx.workspace_root / "enough").exists():
        time.sleep(0.1)
    return "enough"

def answer(request):
    said = json.dumps(request.body["messages"])
    looked = '"tool_result"' in said or '"role": "tool"' in said
    wanted = "stay" if "stay here" in said else "look_around"
    return FakeReply("seen") if looked else FakeReply(calls=(FakeCall(wanted),))

async def own(request):
    return " ".join(sorted(os.environ))

async def main(workspace, state, embedder):
    memory = MemorySettings(
        storage_options={"secret_access_key": STORED},
        embedder=HTTPSettings(url=embedder, model="three", dimensions=3, api_key_env="EMBEDDER_KEY")
    )
    async with FakeProvider(answer) as fake, Runtime(state, memory=memory) as runtime:
        os.environ["OPENAI_BASE_URL"] = fake.url("openai")
        keys = {"given": GIVEN, "configured": os.environ["CONFIGURED_KEY"],
                "harmless": os.environ["SESSIONTREE_OWN_KEY"]}
        models = {
            name: ProviderModel("anthropic:claude-sonnet-5", api_key=key, base_url=fake.url("anthropic"))
            for name, key in keys.items()
        }
        models["own"] = AsyncFunctionModel(own)
        agents = {name: AgentSpec(config=AgentConfig(model=name)) for name in models}
        tree = SessionTree(workspace, model="openai:gpt-5", models=models, agents=agents,
                           tools=[look_around, stay], runtime=runtime)
        looks = []
        async with tree:
            await tree.main.call("memory_store", {"text": "a fact"})
            asked = [("branch", "default"), *(("worker", name) for name in keys)]
            for kind, agent in asked:
                child = await tree.main.spawn(kind, "look", agent=agent)
                assert (await child.result()).summary == "seen"
                looks += [each.text for each in child.history() if each.text.startswith("[[")]
            names = (await (await tree.main.spawn("worker", "tell", agent="own")).result()).summary.split()
            backend = runtime.backend
            socket = backend._launch.scratch / KEYS_SOCKET
            refused = 0
            reference = models["given"].key._reference
            for ask, *words in ((fetch_key, reference, ""), (take_variables,), (fetch_options,)):
                try:
                    ask(socket, *words)
                except OSError:
                    refused += 1
            staying = await tree.main.spawn("worker", "stay here")  # so that a host of Workers is there
            while not any(row.session == staying.session_id for row in await backend.actors()):
                await asyncio.sleep(0.1)
            roles = {row.pid: row.role for row in await backend.actors()}
            found, said = {}, set()
            for pid in everybody_below(os.getpid()):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\\0", b" ").decode()
                if not command:
                    continue  # it has ended
                said |= planted_in(command.encode())
                found[f"{roles.get(pid, command[:200])} ({pid})"] = remembered(pid)
            Path(workspace, "enough").touch()
            assert (await staying.result()).summary == "seen"
            places = [Path(state), Path(backend._engine.home), Path(backend._engine.logs_dir)]
            paths = [path for place in places for path in place.rglob("*") if path.is_file()]
            files = [str(path) for path in paths if planted_in(path.read_bytes())]
        sent = [value for each in fake.requests for name, value in each.headers.items()
                if name in {"authorization", "x-api-key"}]
        print(json.dumps({"looks": looks, "files": files, "sent": sent, "refused": refused, "names": names,
                          "paths": len(paths), "memory": found, "words": sorted(said)}))

asyncio.run(main(*sys.argv[1:]))
'''


@pytest.mark.covers("PRV3")
@pytest.mark.slow
def test_keys_reach_the_gateway_alone(tmp_path: Path) -> None:
    """Keys of variables, of a configuration and of code are sent to their servers, and found nowhere else.

    Looked through are the whole memory of every process below the program, with its environment: hosts, what
    tools start, the supervisor and Ray's servers, which keep actors' arguments and runtime environments; the
    journal; and Ray's session directory with its logs. Nobody but the gateway is given a key, except memory
    that of its embedder and those of its storage options, and no host has loaded a provider's library.
    """
    (tmp_path / "workspace").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    with serving() as vectors:
        done = subprocess.run(
            [
                sys.executable,
                tmp_path / "program.py",
                tmp_path / "workspace",
                tmp_path / "state",
                vectors.url,
            ],
            env={**os.environ, **SECRETS, "MARK": MARK, "GIVEN": GIVEN, "STORED": STORED},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {each.removeprefix("Bearer ") for each in found["sent"]} == OF_MODELS
    assert {each.key for each in vectors.asked} == {f"Bearer {SECRETS['EMBEDDER_KEY']}"}
    assert len(found["looks"]) == 4
    for libraries, variables, child in map(json.loads, found["looks"]):
        assert libraries == []
        assert not SECRETS.keys() & set(variables)
        assert not any(f"{name}=" in child for name in SECRETS)
    assert SECRETS.keys() - set(found["names"]) == {"OTEL_EXPORTER_OTLP_HEADERS"}, "models read variables"
    memory = {role: set(keys or ()) for role, keys in found["memory"].items()}
    seen = " ".join(memory)
    for role in ("acting", "observing", "supervisor", "gateway", "memory", "raylet", "gcs_server", "sleep"):
        assert role in seen
    (gateway,), (embedder,) = ([role for role in memory if role.startswith(each)] for each in ROLES)
    if found["memory"][gateway] is not None:  # the search finds what is there; others than root find nothing
        assert memory.pop(gateway) > OF_MODELS
        of_freed_copies = {"part of one"}  # in a process that may hold keys
        assert memory.pop(embedder) - of_freed_copies == {SECRETS["EMBEDDER_KEY"], STORED}
    hidden = {gateway, embedder}
    assert [role for role, keys in found["memory"].items() if keys is None and role not in hidden] == []
    assert {role: keys for role, keys in memory.items() if keys} == {}
    assert (found["files"], found["words"]) == ([], [])
    assert found["paths"] > 10, "there was something to look through"
    assert found["refused"] == 3


ROLES = ("gateway (", "memory (")
