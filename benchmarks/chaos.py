"""What is lost, done twice or left hanging when processes of a runtime are killed.

``benchmarks.chaos_program`` runs a tree that is always at work. This program kills its processes by SIGKILL,
as a printed seed says. At the end the program drains, and its journal is read. There are three ways:

- `--way roles` (on Ray): one process at a time; after each kill it waits until each of the program's three
  loops has acknowledged an answer again. Roles: `host`, `supervisor`, `gateway`, `memory`, `driver` (the
  program, which is started again and resumes), `watcher` (removes what a killed program leaves), `starting`
  (a process of an actor that has not registered yet: an actor is killed, then what replaces it), `raylet` and
  `gcs` (of the private Ray; the program resumes in place).
- `--way storm`: a process of the program, drawn from all of them, the program included, every 0.2 to 2 s,
  whatever has become of the one before; but a program that was killed may answer once first, or all that
  would ever be killed is a program that starts.
- `--way points` (on the local backend): the program kills itself before an append, when a commit is durable
  and nobody knows of it, or before a message between supervisor and host; the next one resumes and dies
  at another such point.

- `kills`, `by_role`: processes killed; by roles every role gets its share.
- `acknowledged`, `acknowledged_lost`: answers that the program noted, and those of them that the journal (or,
  for records, the store of memory) does not hold.
- `effects`, `effects_twice`: runs of tools with an effect, by id of their calls; ids that ran more than once.
- `children`, `children_twice`: children with a task; tasks that more than one child has.
- `asked_twice`: calls for whose approval there is more than one request.
- `unresolved`: answers that did not come within four minutes (`hung`), calls that were opened or intended and
  have no result when the last program has waited until nothing runs (`open_calls`), and programs that did not
  come to their end (`undrained`).
- `still_running`: sessions that were spawned and have not ended then.
- `trees`: more than one where a tree had ended, because its Main lost three hosts in a row.
- `stalls_over_30s`: kills after which some loop had no answer for longer than 30 s; of a storm, the last.
- `recovery_ROLE_p50_s`, `recovery_ROLE_p95_s`: seconds from the kill until all loops had answers again.

With ``--total FILE`` a run is one part of a longer one: what it found is appended to the file, and figures
are those of all runs in the file; `runs` and `seeds` say how many, and which.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.chaos_program import Unfinished
from benchmarks.places import places
from benchmarks.report import Figure, Options, percentile, show
from sessiontree.backends.ray.engine import engine_home
from sessiontree.contracts.facts.tree_facts import ApprovalRequested, SessionSpawned
from sessiontree.journal.journal import Journal
from sessiontree.journal.replay import read_fact

CHEAP = ("host", "gateway", "memory", "watcher", "starting")
DEAR = ("supervisor", "driver", "raylet", "gcs")
"""Roles whose loss costs the start of an interpreter and more."""
ROLES = (*CHEAP, *DEAR)
DEFAULT_KILLS = 200
WAYS = ("roles", "storm", "points")
QUICK = ["host", "gateway", "memory", "starting"]
STORM_S = (0.2, 2.0)
POINTS = ("append", "durable", "message")
REACH = 60
"""How many of a program's first points are tried; the first ten are its resuming, the rest its work."""
STRIDE = 7
"""So few kills are spread over all of them; no divisor of theirs, so many kills try each."""
MIN_PER_ROLE = 15
LOOPS = ({"message"}, {"worker", "branch"}, {"call", "approved", "written", "record"})
"""What the keys of answers begin with, by the program's loops."""
STALL_S = 30.0
GIVE_UP_S = 180.0
TITLES = {
    "host": "ray::HostActor",
    "supervisor": "ray::SupervisorActor",
    "gateway": "ray::GatewayActor",
    "memory": "ray::MemoryActor",
}
"""How Ray names the process of an actor."""


def schedule(kills: int, seed: int) -> list[str]:
    """Return the roles to kill, in order: the dear ones their share of 15 in 200, the rest to the cheap."""
    least = max(1, kills * MIN_PER_ROLE // DEFAULT_KILLS)
    found = [role for role in ROLES for _ in range(least)]
    found += [CHEAP[at % len(CHEAP)] for at in range(max(0, kills - len(found)))]
    random.Random(seed).shuffle(found)
    return found[:kills]


@dataclass
class Kill:
    """One kill and how long the tree took to answer again; None where it did not."""

    role: str
    recovery_s: float | None


class Tail:
    """Reads what is appended to a file of lines, each line once.

    Args:
        path: The file; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> list[str]:
        """Return the whole lines that were appended since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.decode().splitlines()


@dataclass
class Chaos:
    """The program, its processes, and what was killed of them."""

    place: Path
    seed: int
    backend: str = "ray"
    kills: list[str] = field(default_factory=list)
    """The roles of what was killed."""
    recoveries: list[Kill] = field(default_factory=list)
    """Kills after which nothing else was done until all loops answered."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._acks = Tail(self.place / "acks")
        self._program = self._start()

    def _start(self, *point: str) -> subprocess.Popen[bytes]:
        with (self.place / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.chaos_program", str(self.place), self.backend, *point],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def run(self, roles: list[str]) -> None:
        """Kill one process of each role in turn; a role without a process waits for its next chance."""
        self._begin()
        waiting = list(roles)
        while waiting:
            role = next((each for each in waiting if self._find(each) or each == "starting"), "driver")
            if role in waiting:
                waiting.remove(role)
            self._acks.read()
            began = time.monotonic()
            if not self._kill(role):
                waiting.append(role)
                continue
            loops = (*LOOPS, {"record"}) if role == "memory" else LOOPS
            self.kills.append(role)
            self._recover(role, began, loops)
            rest(self._random.uniform(0.2, 1.0))

    def storm(self, kills: int) -> None:
        """Kill whatever comes, whatever has become of the kill before; then wait until all loops answer."""
        self._begin()
        began = time.monotonic()
        while len(self.kills) < kills:
            rest(self._random.uniform(*STORM_S))
            if self._program.poll() is not None:
                self._answers(GIVE_UP_S, [set.union(*LOOPS)])
            pid = self._random.choice(self._family())
            role = self._role(pid)
            if kill(pid):
                self.kills.append(role)
                print(f"{len(self.kills)} {role} at {time.monotonic() - began:.1f}", file=sys.stderr)
                if role == "driver":
                    self._program.wait()
        self._acks.read()
        self._recover("storm", time.monotonic(), LOOPS)

    def points(self, kills: int) -> None:
        """Let the program end at point after point, each time at another one."""
        self._begin()
        self.end()
        for at in range(kills):
            point, number = POINTS[at % len(POINTS)], 1 + at // len(POINTS) * STRIDE % REACH
            self._program = self._start(point, str(number))
            if self._program.wait(GIVE_UP_S) != -signal.SIGKILL:
                raise SystemExit(f"the program did not get to {point} {number}; its output:\n{self._said()}")
            self.kills.append(point)
        self._program = self._start()
        self._recover("points", time.monotonic(), LOOPS)

    def _begin(self) -> None:
        if not self._answers(GIVE_UP_S):
            raise SystemExit(f"the program never answered; its output:\n{self._said()}")

    def _recover(self, role: str, began: float, loops: Sequence[set[str]]) -> None:
        recovery_s = time.monotonic() - began if self._answers(GIVE_UP_S, loops) else None
        self.recoveries.append(Kill(role, recovery_s))
        print(f"{len(self.kills)} {role} {recovery_s}", file=sys.stderr)

    def drain(self) -> bool:
        """Let the program end by itself; returns whether every loop had its last answer."""
        (self.place / "stop").touch()
        for _ in range(3):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._program.wait(GIVE_UP_S)
            if (self.place / "drained").exists():
                return True
            if self._program.poll() is None:
                self._program.kill()
                self._program.wait()
            self._program = self._start()
        return False

    def end(self) -> None:
        """End the program if it still runs, whatever becomes of the rest."""
        if self._program.poll() is None:
            self._program.kill()
            self._program.wait()

    def _said(self) -> str:
        return "\n".join([*lines_of(self.place / "log")[-30:], *lines_of(self.place / "errors")[-10:]])

    def _answers(self, within_s: float, loops: Sequence[set[str]] = LOOPS) -> bool:
        """Wait until each loop answers again; a program that ended is started again.

        Only lines that were appended since the last look count, and only they are read.
        """
        deadline = time.monotonic() + within_s
        uses: set[str] = set()
        while time.monotonic() < deadline:
            uses.update(key.partition("-")[0] for key in self._acks.read())
            if all(uses & loop for loop in loops):
                return True
            if self._program.poll() is not None:
                self._program = self._start()
            rest(0.02)
        return False

    def _kill(self, role: str) -> bool:
        """Kill one process of a role; returns whether there was one."""
        if role == "starting":
            return self._kill_starting()
        found = self._find(role)
        if not found:
            return False
        kill(self._random.choice(found))
        if role == "driver":
            self._program.wait()
            self._program = self._start()
        return True

    def _kill_starting(self) -> bool:
        """Kill an actor's process, then one that starts; which of them is replaced is drawn."""
        replaced = self._random.choice(["host", "gateway", "supervisor"])
        for pid in self._find(replaced):
            kill(pid)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            found = self._find("starting")
            if found:
                return kill(self._random.choice(found))
            rest(0.005)
        return False

    def _find(self, role: str) -> list[int]:
        """Return the processes of a role that belong to the program."""
        return [pid for pid in self._family() if self._role(pid) == role]

    def _family(self) -> list[int]:
        """Return the program and all that descends from it."""
        root = engine_home.find_process(self._program.pid)
        if root is None:
            return [self._program.pid]
        return [process.pid for process in engine_home.add_descendants({root}, lambda _: False)]

    def _role(self, pid: int) -> str:
        return "driver" if pid == self._program.pid else role_of(pid)


def rest(seconds: float) -> None:
    """Wait without doing anything."""
    select.select([], [], [], seconds)


def kill(pid: int) -> bool:
    """End a process without a word; False where it had ended before."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def role_of(pid: int) -> str:
    """Return what a process of the program is by its command line; `other` where it is something else."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return "other"
    for role, title in TITLES.items():
        if words[0].startswith(title):
            return role
    line = " ".join(words)
    if line.endswith("raylet") or "/raylet/raylet" in words[0]:
        return "raylet"
    if "gcs_server" in words[0]:
        return "gcs"
    if "engine_home.py" in line:
        return "watcher"
    if "default_worker.py" in line:
        return "starting"
    return "other"


def lines_of(path: Path) -> list[str]:
    """Return the whole lines of a file; none where it does not exist."""
    return Tail(path).read()


def judge(place: Path, is_drained: bool) -> dict[str, int]:
    """Return what the journal says of everything the program noted."""
    outcomes: set[str] = set()
    trees = lines_of(place / "trees")
    unfinished = {tree_id: Unfinished() for tree_id in trees}
    tasks: Counter[str] = Counter()
    requests: Counter[tuple[str, str, str]] = Counter()
    for tree_id, session, fact, text in facts_of(place / "state", trees):
        outcomes.update(words_of(text))
        unfinished[tree_id].hear(session, fact)
        match fact:
            case SessionSpawned(spec=spec) if spec.task:
                tasks[spec.task] += 1
            case ApprovalRequested(question=question):
                requests[tree_id, question.session, question.call.key] += 1
    open_calls = sum(len(each.calls) for each in unfinished.values())
    acks = lines_of(place / "acks")
    effects = Counter(lines_of(place / "effects"))
    hung = lines_of(place / "hung")
    return {
        "trees": len(trees),
        "acknowledged": len(acks),
        "acknowledged_lost": sum(key not in outcomes for key in acks),
        "effects": effects.total(),
        "effects_twice": sum(count > 1 for count in effects.values()),
        "children": tasks.total(),
        "children_twice": sum(count > 1 for count in tasks.values()),
        "asked_twice": sum(count > 1 for count in requests.values()),
        "unresolved": len(hung) + open_calls + (not is_drained),
        "hung": len(hung),
        "open_calls": open_calls,
        "undrained": int(not is_drained),
        "still_running": sum(len(each.sessions) for each in unfinished.values()),
        "typed_errors": len(lines_of(place / "errors")),
    }


def facts_of(state: Path, trees: Sequence[str]) -> Iterator[tuple[str, str, object, str]]:
    """Yield tree, session, fact and text of the trees' records, in order, whichever journals hold them."""
    for database in sorted(state.rglob("journal.db")):
        with Journal.open(database.parent, read_only=True) as journal:
            for row in journal.trees():
                if row.tree_id in trees:
                    for record in journal.read(row.tree_id):
                        yield row.tree_id, record.session, read_fact(record.text), record.text


def words_of(text: str) -> Iterator[str]:
    """Yield the keys of answers in a fact: what follows the word that says that something is done."""
    for part in text.split("done ")[1:]:
        end = next(
            (at for at, letter in enumerate(part) if not (letter.isalnum() or letter == "-")), len(part)
        )
        yield part[:end]


@dataclass
class Run:
    """What one run found."""

    seed: int
    kills: list[str]
    """The roles of what was killed."""
    recoveries: list[Kill]
    figures: dict[str, int]
    wall_s: float


def with_earlier(run: Run, path: Path | None) -> list[Run]:
    """Append a run to a file of runs; return all runs in it. Without a file, return this one."""
    if path is None:
        return [run]
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(asdict(run))}\n")
    found = []
    for line in lines_of(path):
        told = json.loads(line)
        found.append(Run(**{**told, "recoveries": [Kill(**each) for each in told["recoveries"]]}))
    return found


def totals(runs: Sequence[Run]) -> dict[str, Figure]:
    """Return the figures of all runs together."""
    sums: Counter[str] = Counter()
    for run in runs:
        sums.update(run.figures)
    kills = [role for run in runs for role in run.kills]
    recovered = [each for run in runs for each in run.recoveries]
    stalls = sum(each.recovery_s is None or each.recovery_s > STALL_S for each in recovered)
    return {
        "kills": len(kills),
        **{name: sums[name] for name in runs[0].figures},
        "stalls_over_30s": stalls,
        **recoveries(recovered),
        "by_role": dict(Counter(kills)),
        "runs": len(runs),
        "seeds": " ".join(str(run.seed) for run in runs),
        "wall_s": sum(run.wall_s for run in runs),
    }


def recoveries(kills: list[Kill]) -> dict[str, Figure]:
    """Return medians and 95th percentiles of the seconds to the next answer, by role."""
    found: dict[str, Figure] = {}
    for role in dict.fromkeys(each.role for each in kills):
        times = [
            GIVE_UP_S if each.recovery_s is None else each.recovery_s for each in kills if each.role == role
        ]
        if times:
            found[f"recovery_{role}_p50_s"] = statistics.median(times)
            found[f"recovery_{role}_p95_s"] = percentile(times, 95)
    return found


@contextlib.contextmanager
def kept(place: Path) -> Iterator[tuple[Path, Path]]:
    """Yield workspace and place for state in a directory that stays."""
    workspace = place / "workspace"
    workspace.mkdir()
    yield workspace, place / "state"


def main() -> None:
    """Kill, drain, read the journal and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=DEFAULT_KILLS, help="processes to kill")
    parser.add_argument("--seed", type=int, default=None, help="of the order; drawn where it is left out")
    parser.add_argument("--way", choices=WAYS, default="roles", help="how it chooses what to kill, and when")
    parser.add_argument("--backend", choices=("ray", "local"), default="ray", help="where the tree runs")
    parser.add_argument("--quick", action="store_true", help="four kills of the cheapest roles")
    parser.add_argument("--place", type=Path, default=None, help="an empty directory that keeps everything")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--total", type=Path, default=None, help="a file of runs, to which this one is added")
    given = parser.parse_args()
    if (given.way, given.backend) in {("roles", "local"), ("points", "ray")}:
        parser.error(f"--way {given.way} does not go with --backend {given.backend}")
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr)
    with places() if given.place is None else kept(given.place) as (workspace, _):
        chaos = Chaos(workspace.parent, seed, given.backend)
        began = time.monotonic()
        try:
            match given.way:
                case "roles":
                    chaos.run(QUICK if given.quick else schedule(given.kills, seed))
                case "storm":
                    chaos.storm(len(QUICK) if given.quick else given.kills)
                case _:
                    chaos.points(len(QUICK) if given.quick else given.kills)
            figures = judge(workspace.parent, chaos.drain())
        finally:
            chaos.end()
    run = Run(seed, chaos.kills, chaos.recoveries, figures, time.monotonic() - began)
    show(
        totals(with_earlier(run, given.total)),
        Options(given.quick, given.json, given.backend),
    )


if __name__ == "__main__":
    main()
