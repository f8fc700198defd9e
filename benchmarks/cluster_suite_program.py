"""The programs of ``benchmarks.cluster --samples``: a suite whose model needs a key, and the provider.

``benchmarks.cluster`` says what the figures are. The key is in a file that only this user reads. The provider
is a fake one in a process of its own and refuses every other key. Meanwhile everything is searched for it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import ray

from benchmarks.chaos import role_of
from benchmarks.cluster_program import FIGURES, TestNodes
from benchmarks.processes import cpu_ms
from benchmarks.report import Figure
from sessiontree import ModelPrice, PermissionTier, ProviderModel, ToolContext, tool
from sessiontree.bench import Attempt, Sample, Score, Suite
from sessiontree.bench.ledger.leases import SampleLease
from sessiontree.bench.ledger.ledger import Ledger
from sessiontree.bench.ledger.ledger_tables import AttemptResult
from sessiontree.bench.run.place.progress import RunProgress
from sessiontree.journal.claim import list_journal_dirs
from sessiontree.journal.journal import Journal
from sessiontree.sandbox.process_tree import find_descendants
from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest

AT_A_TIME: Final = 48
DUMPS: Final = 8
"""How many of the first samples dump their environment into the conversation, and so into the journal."""
PRICE: Final = ModelPrice(input_per_million=0.25, output_per_million=2.0)
BLOCK_BYTES: Final = 2**22


@tool(tier=PermissionTier.WORKSPACE)
def note(key: str, ctx: ToolContext) -> str:
    """Take a note; for the first samples, of everything that this process has in its environment."""
    (ctx.workspace_root / "note").write_text(key, "utf-8")
    if int(key.removeprefix("s")) < DUMPS:
        environment = Path("/proc/self/environ").read_bytes().decode("utf-8", "replace")
        return f"noted {key} {json.dumps(dict(os.environ))} {environment!r}"
    return f"noted {key}"


def reply_to(request: FakeRequest, key: str) -> FakeReply:
    """Return the provider's answer: a call, then the words that end the sample; 401 without the key."""
    if request.headers.get("authorization") != f"Bearer {key}":
        return FakeReply(status=401, error="this is not the key")
    messages = request.body["messages"]
    asked = next(each["content"] for each in messages if each["role"] == "user")
    name = asked if isinstance(asked, str) else asked[0]["text"]
    if messages[-1]["role"] == "tool":
        return FakeReply(f"noted {name}")
    return FakeReply(calls=(FakeCall("note", json.dumps({"key": name})),))


async def serve(key: str) -> None:
    """Serve as the provider until the standard input closes; the first line says the port."""
    async with FakeProvider(lambda request: reply_to(request, key)) as provider:
        print(provider.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def provider(file: Path) -> Iterator[str]:
    """Start the provider, and yield its address."""
    words = [sys.executable, "-m", "benchmarks.cluster_suite_program", "provider", str(file)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.stdin.close()


async def solve(attempt: Attempt[str]) -> str:
    """Send the sample to Main."""
    return await attempt.tree.main.send(attempt.sample.input)


def noted(attempt: Attempt[str]) -> bool:
    """Compare the reply with the target."""
    return bool(attempt.output == attempt.sample.target)


def kind_of(pid: int) -> str:
    """Return what a process of the cluster is."""
    if pid == os.getpid():
        return "program"
    with suppress(OSError):
        title = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode("utf-8", "replace")
        if title.startswith("ray::"):
            return title.removeprefix("ray::").partition(".")[0].partition(":")[0]
        if b"benchmarks.cluster_suite_program\0provider" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return "provider"
    return role_of(pid)


class KeySearch:
    """Searches everything that a cluster leaves for a key.

    Args:
        key: The key.
        folders: Where files are, by what they are.
    """

    def __init__(self, key: str, folders: dict[str, Path]) -> None:
        self._key = key.encode()
        self._folders = folders

    def processes(self) -> dict[str, Figure]:
        """Return how many processes show the key as an argument or variable, and by kind how many hold it."""
        found: Counter[str] = Counter(arguments=0, environments=0)
        holding: Counter[str] = Counter()
        looked = 0
        for pid in (os.getpid(), *find_descendants(os.getpid())):
            place = Path("/proc", str(pid))
            with suppress(OSError):  # it has ended
                found["arguments"] += self._key in (place / "cmdline").read_bytes()
                found["environments"] += self._key in (place / "environ").read_bytes()
                looked += 1
                try:
                    holding[kind_of(pid)] += self._is_held(place)
                except OSError:
                    found["memory_not_readable"] += 1
        return {
            **found,
            "processes": looked,
            "memory_of": {name: each for name, each in holding.items() if each},
        }

    def _is_held(self, place: Path) -> bool:
        """Return whether the key is in the writable memory of a process."""
        with (place / "mem").open("rb", buffering=0) as memory:
            for line in (place / "maps").read_text("utf-8", "replace").splitlines():
                span, rights, *_ = line.split()
                first, last = (int(each, 16) for each in span.split("-"))
                if rights.startswith("rw") and self._is_in(memory, first, last):
                    return True
        return False

    def _is_in(self, memory: Any, first: int, last: int) -> bool:
        for at in range(first, last, BLOCK_BYTES):
            with suppress(OSError):  # it was given back meanwhile
                if self._key in os.pread(memory.fileno(), min(BLOCK_BYTES + len(self._key), last - at), at):
                    return True
        return False

    def facts(self, place: Path) -> tuple[int, int]:
        """Return how many trees a journal holds, and how many of their facts hold the key."""
        with Journal.open(place, read_only=True) as journal:
            trees = [row.tree_id for row in journal.trees()]
            texts = (record.text for tree_id in trees for record in journal.read(tree_id))
            return len(trees), sum(self._key in text.encode() for text in texts)

    def files(self) -> dict[str, Figure]:
        """Return in how many files of each folder the key is."""
        found: Counter[str] = Counter(dict.fromkeys(self._folders, 0))
        for name, folder in self._folders.items():
            for file in folder.rglob("*"):
                with suppress(OSError):
                    found[name] += file.is_file() and self._key in file.read_bytes()
        return dict(found)


def used_by_kind() -> Counter[str]:
    """Return the processor time of everything that the program started, by kind, in ms."""
    found: Counter[str] = Counter()
    for pid in (os.getpid(), *find_descendants(os.getpid())):
        with suppress(OSError):
            found[kind_of(pid)] += cpu_ms(pid)
    return found


class Moments(RunProgress):
    """Looks at all processes when the run has begun, and when most of it is scored.

    Args:
        search: Is done at the second moment.
        count: How many samples there are.
    """

    def __init__(self, search: KeySearch, count: int) -> None:
        super().__init__()
        self._search = search
        self._at = [max(1, count // 10), max(2, count * 9 // 10)]
        self._count = 0
        self._begun, self._late = threading.Event(), threading.Event()
        self._used: list[tuple[int, float, Counter[str]]] = []
        self.seen: dict[str, Figure] = {}
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def scored(self, lease: SampleLease, result: AttemptResult) -> None:
        """Count."""
        self._count += 1
        if self._count >= self._at[0]:
            self._begun.set()
        if self._count >= self._at[1]:
            self._late.set()

    def say(self, text: str) -> None:
        """Show why something was tried again."""
        print(text, file=sys.stderr)

    def join(self) -> None:
        """Wait for what is looked at."""
        self._begun.set()
        self._late.set()
        self._thread.join()

    def _look(self) -> None:
        for moment in (self._begun, self._late):
            moment.wait()
            self._used.append((self._count, time.monotonic(), used_by_kind()))
        self.seen = self._search.processes()

    def figures(self) -> dict[str, Figure]:
        """Return what a sample cost between the two moments."""
        (first, began, before), (last, ended, after) = self._used
        samples = max(1, last - first)
        after.subtract(before)
        return {
            "steady_samples_per_s": samples / (ended - began),
            "cpu_ms_per_sample": {kind: used / samples for kind, used in after.items() if used > 0},
        }


async def play(place: Path, count: int, nodes: int) -> dict[str, Figure]:
    """Run the suite on so many nodes; search for the key when half is scored, and after the end."""
    key, file = f"sk-{secrets.token_hex(24)}", place / "key"
    file.touch(0o600)
    file.write_text(key, "ascii")
    cluster = TestNodes(place / "ray")
    with provider(file) as url:
        cluster.join()
        try:
            for _ in range(nodes - 1):
                cluster.add()
            model = ProviderModel("openai:fake", key=f"file:{file}", base_url=url, price=PRICE)
            return await _measured(place, count, model)
        finally:
            ray.shutdown()
            cluster.end()


async def ledger_rate(folder: Path, count: int, *, shared: bool) -> float:
    """Return how many samples a second one program leases and commits, as many at a time as the suite has.

    Args:
        folder: An empty directory.
        count: How many samples.
        shared: Whether other machines might use the file, as on a network file system.
    """
    names = [f"s{number}" for number in range(count)]
    result = AttemptResult({"noted": Score(1.0)}, "completed", 5)
    async with Ledger(folder / f"ledger-{shared}.sqlite", "rate", shared=shared) as ledger:
        await ledger.prepare({"suite": "rate"}, names, 1, 0)
        began, done = time.monotonic(), 0
        while leases := (await ledger.lease(AT_A_TIME, 1)).leases:
            async with asyncio.TaskGroup() as group:
                for each in leases:
                    group.create_task(ledger.commit(each, result))
            done += len(leases)
        return done / (time.monotonic() - began)


async def _measured(place: Path, count: int, model: ProviderModel) -> dict[str, Figure]:
    run_dir = place / "run"
    assert model.key is not None
    search = KeySearch(await model.key.text(), {"files_of_the_run": run_dir, "logs": place / "ray"})
    moments = Moments(search, count)
    samples = [Sample(f"s{number}", f"s{number}", f"noted s{number}") for number in range(count)]
    suite = Suite("keyed", samples, solve, noted, tree={"tools": [note], "builtin_tools": False}, model=model)
    began = time.monotonic()
    await suite.run(run_dir, shards="per-node", concurrency=AT_A_TIME, progress=moments)
    wall_s = time.monotonic() - began
    moments.join()
    journals = list_journal_dirs(run_dir / "state")
    found = [search.facts(each) for each in journals]
    stored = sum(file.stat().st_size for each in journals for file in each.glob("journal.db*"))
    fetched = sum(file.stat().st_size for file in (run_dir / "fetched").glob("*"))
    rates = {
        name: await ledger_rate(place, count, shared=shared)
        for name, shared in (("own_disk", False), ("shared_disk", True))
    }
    return {
        "scored": moments.tally.scored,
        "passed": moments.tally.passed,
        "nodes_used": sum(trees > 0 for trees, _ in found),
        "trees_by_node": {str(number): trees for number, (trees, _) in enumerate(found, 1)},
        "samples_per_s": count / wall_s,
        **moments.figures(),
        "journal_bytes_per_sample": stored / count,
        "fetched_bytes_per_sample": fetched / count,
        "ledger_samples_per_s": rates,
        "key_found": {"facts": sum(facts for _, facts in found), **search.files(), **moments.seen},
    }


def main(way: str, *given: str) -> None:
    """Run one of the programs; the figures go to a file, since Ray prints too."""
    if way == "provider":
        asyncio.run(serve(Path(given[0]).read_text("ascii").strip()))
        return
    place, count, nodes = Path(given[0]), int(given[1]), int(given[2])
    figures = asyncio.run(play(place, count, nodes))
    Path(place, FIGURES).write_text(json.dumps(figures), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
