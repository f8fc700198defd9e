"""What a suite costs over a plain loop, and whether each sample is scored once when its processes are killed.

A sample is one message to Main, which calls a tool with an effect (a line in a file outside the run) and
repeats its result; a scorer compares. The model replies at once. Sixteen samples run at a time.

Steady: the suite with five times as many samples as asked for, between two runs of a plain loop that does the
same work over one runtime (a tree for each sample, the message, the end of the tree). The clock starts when
the first sixteen samples are done, so that no start of a process is in it, and every score is durable.

- `wall_ms_per_sample`, `direct_ms_per_sample`: time over samples; `overhead_ms_per_sample`: the difference;
  aim 5. `overhead_cpu_ms_per_sample`: the same of the program's processor time.
- `pss_mib`: memory of the program after so many samples, and after five times as many;
  `pss_growth_kib_per_sample`: the difference over the samples between.

``--part`` chooses one of the three parts. With ``--poison``, the tool of one sample ends its process. Each
sample may be lost three times by its own doing: `failed` is 1, and none fails for its neighbour.

Kills: the command runs the suite. Its processes are killed by SIGKILL, one after another, at moments spread
over the run; a killed driver is started again by the same command. The order comes from a printed seed. With
``--provider``, a fake provider in a process of its own replies, and it is killed, too; it is started again at
once, and the run asks it again after five seconds.

- `kills`, `by_role`: `driver` is the command itself; `supervisor` and `host` only on Ray.
- `scored`, `scored_twice`, `unscored`, `failed`: samples with a score, with more than one committed attempt,
  with none, and given up. `wrong`: scores that are not a pass, which every sample earns.
- `lost_attempts`, `retried_attempts`: attempts that ended with their program, or by an infrastructure error;
  none of them is scored.
- `effects`: lines in the file; `effects_twice`: calls that had their effect twice; `effects_missing`: scored
  samples without one.

Cluster (on Ray alone): the same suite with a shard on each of three nodes of this machine; the raylet of one
that does not run the program is killed when a third is scored.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.chaos import kill, lines_of, rest, role_of
from benchmarks.report import Figure, Options, show
from benchmarks.suite_program import AT_A_TIME, FIGURES, POISON, PROVIDER, SAMPLES
from benchmarks.suite_provider import ProviderProcess
from sessiontree.backends.ray.engine import engine_home

ROOT: Final = Path(__file__).resolve().parents[1]
FORMS = (
    ("--part", "steady"),
    ("--part", "kills"),
    ("--part", "cluster"),
    ("--backend", "local"),
)
PARTS: Final = ("steady", "kills", "cluster")
SAMPLES_USUAL, SAMPLES_QUICK = 2_000, 40
KILLS_USUAL, KILLS_QUICK = 24, 3
ROLES: Final = ("driver", "supervisor", "host", "host")
LIMIT_S: Final = 1800.0
POISONED: Final = 3
"""Exit code of a command that a sample has ended."""
STALL_S: Final = 240.0
"""How long a run may go without another score before it counts as stuck."""


class SuiteChaos:
    """The command on the suite, and what is killed of it.

    Args:
        place: An empty directory.
        backend: Where its trees run.
        samples: How many there are.
        seed: Of the order and the moments.
        poison: Id of a sample that ends its process; empty = none does.
        provider: Whether a provider replies, and is killed as well.
    """

    def __init__(
        self, place: Path, backend: str, samples: int, seed: int, poison: str = "", *, provider: bool = False
    ) -> None:
        self._place = place
        self._backend = backend
        self._samples = samples
        self._poison = poison
        self._random = random.Random(seed)
        self.kills: list[str] = []
        """The roles of what was killed."""
        self._provider = ProviderProcess() if provider else None
        self._program = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [str(Path(sys.executable).with_name("sessiontree")), "bench", "run"]
        options = [
            "--dir",
            str(self._place / "run"),
            "--backend",
            self._backend,
            "--retries",
            "3",
            "--json",
        ]
        variables = {SAMPLES: str(self._samples), POISON: self._poison}
        if self._provider is not None:
            variables[PROVIDER] = self._provider.url
        with (self._place / "log").open("ab") as log:
            return subprocess.Popen(
                [*command, "benchmarks.suite_program:suite", *options, "--concurrency", str(AT_A_TIME)],
                cwd=ROOT,
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def run(self, kills: int) -> None:
        """Kill so many processes, spread over the run, and wait for its end.

        Raises:
            SystemExit: the command failed, or nothing is scored any more.
        """
        known = [
            *(ROLES if self._backend == "ray" else ("driver",)),
            *(["provider"] if self._provider else []),
        ]
        roles = [known[at % len(known)] for at in range(kills)]
        self._random.shuffle(roles)
        try:
            for at, role in enumerate(roles, 1):
                self._wait_for(self._samples * at // (kills + 2))
                rest(self._random.uniform(0.0, 0.3))
                self._kill(role)
            self._wait_for(self._samples - bool(self._poison))
            while self._program.wait(STALL_S) == POISONED:
                self._program = self._start()
            if self._program.returncode != bool(self._poison):
                raise SystemExit(f"the last command failed: {self._said()}")
        finally:
            if self._program.poll() is None:
                self._program.kill()
                self._program.wait()
            if self._provider is not None:
                self._provider.kill()

    def _wait_for(self, count: int) -> None:
        known, since = -1, time.monotonic()
        while (scored := self.scored()) < count:
            if scored != known:
                known, since = scored, time.monotonic()
            if self._program.poll() == POISONED:
                self._program = self._start()
            if time.monotonic() - since > STALL_S or self._program.poll() not in {None, 0}:
                raise SystemExit(f"{scored} of {count} samples are scored, and no more: {self._said()}")
            rest(0.02)

    def scored(self) -> int:
        """Return how many samples are scored so far."""
        with suppress(sqlite3.Error):
            return int(query(self._place / "run", "SELECT count(*) FROM scores")[0][0])
        return 0

    def _kill(self, role: str) -> None:
        if role == "provider" and self._provider is not None:
            self._provider.kill()
            self._provider = ProviderProcess(self._provider.port)
            self.kills.append(role)
            return
        root = engine_home.find_process(self._program.pid)
        family = [] if root is None else engine_home.add_descendants({root}, lambda _: False)
        found = [each.pid for each in family if role_of(each.pid) == role]
        victim = self._random.choice(found) if found else self._program.pid
        if not kill(victim):
            return
        self.kills.append(role if found else "driver")
        if victim == self._program.pid:
            self._program.wait()
            self._program = self._start()

    def _said(self) -> str:
        return "\n".join(lines_of(self._place / "log")[-20:])


def query(run: Path, text: str) -> list[tuple[Any, ...]]:
    """Return what a query finds in the ledger of a run."""
    db = sqlite3.connect(f"file:{run / 'ledger.sqlite'}?mode=ro", uri=True, timeout=30)
    try:
        return db.execute(text).fetchall()
    finally:
        db.close()


def judge(place: Path, samples: int) -> dict[str, Figure]:
    """Return what the ledger and the file of effects say of a run."""
    run = place / "run"
    outcomes = dict(query(run, "SELECT outcome, count(*) FROM attempts GROUP BY outcome"))
    committed = Counter(
        key for (key,) in query(run, "SELECT sample_id FROM attempts WHERE outcome = 'scored'")
    )
    scored = {str(key) for (key,) in query(run, "SELECT sample_id FROM scores")}
    wrong = query(run, "SELECT 1 FROM scores WHERE NOT passed OR status != 'completed'")
    effects = lines_of(place / "effects")
    seen = {line.partition(" ")[0] for line in effects}
    return {
        "samples": samples,
        "scored": len(scored),
        "scored_twice": sum(count > 1 for count in committed.values()),
        "unscored": samples - len(scored),
        "failed": query(run, "SELECT count(*) FROM samples WHERE state = 'failed'")[0][0],
        "wrong": len(wrong),
        "lost_attempts": outcomes.get("lost", 0),
        "retried_attempts": outcomes.get("error", 0),
        "effects": len(effects),
        "effects_twice": sum(count > 1 for count in Counter(effects).values()),
        "effects_missing": len(scored - seen),
    }


def killed(
    place: Path, backend: str, samples: int, kills: int, seed: int, *, poison: bool, provider: bool
) -> dict[str, Figure]:
    """Kill processes of a run; return the figures."""
    place.mkdir()
    began = time.monotonic()
    chaos = SuiteChaos(place, backend, samples, seed, "s2" if poison else "", provider=provider)
    chaos.run(kills)
    by_role: Mapping[str, Figure] = Counter(chaos.kills)
    return {
        **judge(place, samples),
        "kills": len(chaos.kills),
        "by_role": dict(by_role),
        "seed": seed,
        "wall_s": time.monotonic() - began,
    }


def program(way: str, place: Path, backend: str, samples: int) -> dict[str, Figure]:
    """Run a program of :mod:`benchmarks.suite_program` in a process of its own; return its figures."""
    place.mkdir()
    variables = {"PYTHONPATH": str(ROOT), "HOME": str(place), "RAY_TMPDIR": str(place)}
    command = [sys.executable, "-m", "benchmarks.suite_program", way, str(place), backend, str(samples)]
    try:
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **variables} if way == "steady" else {"PATH": os.defpath, **variables},
            stdout=subprocess.DEVNULL,
            timeout=LIMIT_S,
            check=True,
        )
    finally:
        if way == "cluster":  # the agents of a node whose raylet was killed outlive it by a minute
            folder = place / "ray"
            writers = engine_home.log_writers(folder.resolve())
            engine_home.end_processes(folder, grace_s=0.0, known=writers)
    figures: dict[str, Figure] = json.loads((place / FIGURES).read_text("utf-8"))
    return {**figures, **judge(place, samples)} if way == "cluster" else figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="few samples and kills")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout")
    parser.add_argument("--backend", choices=("ray", "local"), default="ray", help="where the trees run")
    parser.add_argument("--samples", type=int, help=f"how many samples; {SAMPLES_USUAL:,} by default")
    parser.add_argument("--kills", type=int, help=f"how many processes are killed; {KILLS_USUAL} by default")
    parser.add_argument("--seed", type=int, help="of the kills; drawn where it is left out")
    parser.add_argument("--poison", action="store_true", help="one sample ends its process")
    parser.add_argument("--provider", action="store_true", help="a fake provider replies, and is killed, too")
    parser.add_argument("--part", choices=PARTS, help="only this one")
    given = parser.parse_args(arguments)
    parts = [given.part] if given.part else PARTS if given.backend == "ray" else PARTS[:2]
    samples = given.samples or (SAMPLES_QUICK if given.quick else SAMPLES_USUAL)
    kills = given.kills or (KILLS_QUICK if given.quick else KILLS_USUAL)
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr)
    # A short path leaves room for the names of Ray's sockets.
    with tempfile.TemporaryDirectory(prefix="suite-", dir="/tmp", ignore_cleanup_errors=True) as name:
        place = Path(name)
        figures: dict[str, Figure] = {"backend": given.backend, "concurrency": AT_A_TIME}
        for part in parts:
            if part == "kills":
                figures[part] = killed(
                    place / part[0],
                    given.backend,
                    samples,
                    kills,
                    seed,
                    poison=given.poison,
                    provider=given.provider,
                )
            else:
                figures[part] = program(part, place / part[0], given.backend, samples)
    show(figures, Options(given.quick, given.as_json, given.backend))


if __name__ == "__main__":
    main()
