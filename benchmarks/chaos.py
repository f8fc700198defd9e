"""What is lost, done twice or left hanging when processes of a runtime on Ray are killed at random.

``benchmarks.chaos_program`` runs a tree that is always at work. This program kills its processes by SIGKILL,
one at a time, in an order drawn from a printed seed, and waits after each kill until each of the program's
three loops has acknowledged an answer again. Roles: `host`, `supervisor`, `gateway`, `memory`, `driver` (the
program, which is started again and resumes), `watcher` (removes what a killed program leaves), `starting` (a
process of an actor that has not registered yet: an actor is killed, then what replaces it), `raylet` and
`gcs` (of the private Ray; the program resumes in place). At the end the program drains, and its journal is
read.

- `kills`, `by_role`: processes killed; with `--kills N` every role gets its share.
- `acknowledged`, `acknowledged_lost`: answers that the program noted, and those of them that the journal (or,
  for records, the store of memory) does not hold.
- `effects`, `effects_twice`: runs of tools with an effect, by id of their calls; ids that ran more than once.
- `unresolved`: answers that did not come within four minutes, calls with an intent and no result, sessions
  spawned that never ended although their tree was closed in order.
- `stalls_over_30s`: kills after which some loop had no answer for longer than 30 s.
- `recovery_ROLE_p50_s`, `recovery_ROLE_p95_s`: seconds from the kill until all loops had answers again.
"""

from __future__ import annotations

import argparse
import contextlib
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
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.places import places
from benchmarks.report import Figure, Options, percentile, show
from sessiontree.backends.ray import engine_home
from sessiontree.contracts import stimuli
from sessiontree.contracts.session_facts import CallIntended, CallResolved
from sessiontree.contracts.tree_facts import SessionEnded, SessionSpawned
from sessiontree.journal.journal import Journal
from sessiontree.runtime.replay import fact_of

POSTED = stimuli
"""Posts in facts hold stimuli; their room makes them known."""
CHEAP = ("host", "gateway", "memory", "watcher", "starting")
DEAR = ("supervisor", "driver", "raylet", "gcs")
"""Roles whose loss costs the start of an interpreter and more."""
ROLES = (*CHEAP, *DEAR)
DEFAULT_KILLS = 200
QUICK = ["host", "gateway", "memory", "starting"]
MIN_PER_ROLE = 15
LOOPS = ({"message"}, {"worker"}, {"call", "approved", "record"})
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
    kills: list[Kill] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._acks = Tail(self.place / "acks")
        self._program = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.place / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.chaos_program", str(self.place)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def run(self, roles: list[str]) -> None:
        """Kill one process of each role in turn; a role without a process waits for its next chance."""
        if not self._answers(GIVE_UP_S):
            raise SystemExit(f"the program never answered; its output:\n{self._said()}")
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
            answered = self._answers(GIVE_UP_S, loops)
            recovery_s = time.monotonic() - began if answered else None
            self.kills.append(Kill(role, recovery_s))
            print(f"{len(self.kills)} {role} {recovery_s}", file=sys.stderr)
            rest(self._random.uniform(0.2, 1.0))

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
        if role == "driver":
            return [self._program.pid]
        root = engine_home.process_of(self._program.pid)
        if root is None:
            return []
        family = engine_home.with_descendants({root}, lambda _: False)
        return [process.pid for process in family if role_of(process.pid) == role]


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
    """Return what a process of the program is by its command line; empty where it is something else."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
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
    return ""


def lines_of(path: Path) -> list[str]:
    """Return the whole lines of a file; none where it does not exist."""
    return Tail(path).read()


def judge(place: Path, is_drained: bool) -> dict[str, Figure]:
    """Return what the journal says of everything the program noted."""
    tree_id = (place / "tree").read_text("utf-8")
    outcomes: set[str] = set()
    open_calls: set[tuple[str, str]] = set()
    running: set[str] = set()
    for session, fact, text in facts_of(place / "state", tree_id):
        outcomes.update(words_of(text))
        match fact:
            case CallIntended(key=key):
                open_calls.add((session, key))
            case CallResolved(key=key):
                open_calls.discard((session, key))
            case SessionSpawned(spec=spec):
                running.add(spec.session_id)
            case SessionEnded(session=ended):
                running.discard(ended)
    acks = lines_of(place / "acks")
    effects = Counter(lines_of(place / "effects"))
    hung = lines_of(place / "hung")
    return {
        "acknowledged": len(acks),
        "acknowledged_lost": sum(key not in outcomes for key in acks),
        "effects": effects.total(),
        "effects_twice": sum(count > 1 for count in effects.values()),
        "unresolved": len(hung) + len(open_calls) + (not is_drained),
        "still_running": len(running - {"main"}),
        "typed_errors": len(lines_of(place / "errors")),
    }


def facts_of(state: Path, tree_id: str) -> Iterator[tuple[str, object, str]]:
    """Yield session, fact and text of every record of the tree, in order, from whichever journal holds it."""
    for database in sorted(state.rglob("journal.db")):
        with Journal.open(database.parent, read_only=True) as journal:
            if any(row.tree_id == tree_id for row in journal.trees()):
                for record in journal.read(tree_id):
                    yield record.session, fact_of(record.text), record.text


def words_of(text: str) -> Iterator[str]:
    """Yield the keys of answers in a fact: what follows the word that says that something is done."""
    for part in text.split("done ")[1:]:
        end = next(
            (at for at, letter in enumerate(part) if not (letter.isalnum() or letter == "-")), len(part)
        )
        yield part[:end]


def recoveries(kills: list[Kill]) -> dict[str, Figure]:
    """Return medians and 95th percentiles of the seconds to the next answer, by role."""
    found: dict[str, Figure] = {}
    for role in ROLES:
        times = [
            GIVE_UP_S if each.recovery_s is None else each.recovery_s for each in kills if each.role == role
        ]
        if times:
            found[f"recovery_{role}_p50_s"] = statistics.median(times)
            found[f"recovery_{role}_p95_s"] = percentile(times, 95)
    return found


def main() -> None:
    """Kill, drain, read the journal and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=DEFAULT_KILLS, help="processes to kill")
    parser.add_argument("--seed", type=int, default=None, help="of the order; drawn where it is left out")
    parser.add_argument("--quick", action="store_true", help="four kills of the cheapest roles")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr)
    with places() as (workspace, _):
        chaos = Chaos(workspace.parent, seed)
        began = time.monotonic()
        try:
            chaos.run(QUICK if given.quick else schedule(given.kills, seed))
            figures = judge(workspace.parent, chaos.drain())
        finally:
            chaos.end()
    stalls = sum(each.recovery_s is None or each.recovery_s > STALL_S for each in chaos.kills)
    by_role: dict[str, Figure] = dict(Counter(each.role for each in chaos.kills))
    show(
        {
            "kills": len(chaos.kills),
            **figures,
            "stalls_over_30s": stalls,
            **recoveries(chaos.kills),
            "by_role": by_role,
            "seed": seed,
            "wall_s": time.monotonic() - began,
        },
        Options(given.quick, given.json, "ray"),
    )


if __name__ == "__main__":
    main()
