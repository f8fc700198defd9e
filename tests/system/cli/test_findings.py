"""What a doctor finds wrong with machines and runtimes that this one is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessiontree.backends.ray.engine.cluster_report import ClusterReport, NodeReport
from sessiontree.cli import findings
from sessiontree.cli.checkup import (
    Confinement,
    Installation,
    LiveRuntime,
    State,
    SystemLimits,
    look_at_installation,
    look_at_limits,
)
from sessiontree.cli.findings import Finding
from sessiontree.contracts.errors import ConfigError, JournalCorrupt
from sessiontree.runtime.transport.supervisor_api import ActorRow
from sessiontree.sandbox import Level

GOOD = Installation("0.1.0", "3.12.1", "/usr/bin/python", "2.60.0", "Linux", "6.8.0", "x86_64")
FULL = Confinement(Level(7, True), Level(7, True), None, 40)
QUIET_RAY: dict[str, Any] = {
    "ray_version": "2.60.0",
    "private": True,
    "auth_mode": "token",
    "token_path": None,
    "token_mode": None,
    "key_variables": [],
    "directory": "/tmp/sessiontree-1",
    "directory_mode": "0700",
    "dashboard": "off",
    "nodes": 1,
    "listening": [],
    "failed_starts": [],
}
RAYLET = {"address": "0.0.0.0", "port": 34567, "process": "raylet", "pid": 12}  # noqa: S104 - what must be reported
SERVER = {"address": "::", "port": 6379, "process": "gcs_server", "pid": 11}
SUPERVISOR = ActorRow("supervisor", "supervisor", 20, "structural")


def live(*hosts: ActorRow, **security: Any) -> LiveRuntime:
    """Return a runtime on Ray, in order but for what is given."""
    return LiveRuntime("0.1.0", ("t1",), (SUPERVISOR, *hosts), {**QUIET_RAY, **security})


def state(**members: Any) -> State:
    """Return a state directory, in order but for what is given."""
    good = State(Path("/state/of mine"), 0o700, 0o600, True, 4096, 1, (), None, None)
    return replace(good, **members)


def only(found: Any, mark: str) -> Finding:
    """Return the one finding there is."""
    (finding,) = found
    assert isinstance(finding, Finding)
    assert finding.mark == mark
    assert finding.what
    assert finding.do, "what is wrong without what to do helps nobody"
    assert str(finding) == f"{mark}: {finding.what}; {finding.do}"
    return finding


def test_machine_in_order_has_no_findings() -> None:
    """Nothing is said of what is as it should be."""
    assert list(findings.judge_installation(GOOD)) == []
    assert list(findings.judge_limits(SystemLimits(2**30, None))) == []
    assert list(findings.judge_limits(SystemLimits(None, 4096))) == []
    assert list(findings.judge_confinement(FULL)) == []
    assert list(findings.judge_state(state())) == []
    assert list(findings.judge_absence(state())) == []
    confined = ActorRow("observing2", "observing", 30, "landlock-7+seccomp", "t1", "main/w1", 1)
    starting = ActorRow("observing3", "observing", 0, "starting")
    acting = ActorRow("acting1", "acting", 29, "structural", "t1", "main", 1)
    assert list(findings.judge_runtime(live(acting, confined, starting))) == []
    assert list(findings.judge_runtime(LiveRuntime("0.1.0", (), (SUPERVISOR,), None))) == []


def test_this_machine_is_seen() -> None:
    """What is installed here is found without loading it."""
    here = look_at_installation()
    assert here.ray is not None
    assert here.ray.startswith("2.")
    assert here.executable
    room = look_at_limits()
    assert room.descriptors is None or room.descriptors > 0


@pytest.mark.parametrize(("ray", "says"), [(None, "not installed"), ("2.58.1", "Ray 2.58.1 is installed")])
def test_ray_that_is_missing_or_old_is_wrong(ray: str | None, says: str) -> None:
    """Nothing runs by default; the local backend does."""
    finding = only(findings.judge_installation(replace(GOOD, ray=ray)), "wrong")
    assert says in finding.what
    assert finding.do.endswith("or run with backend='local'")


@pytest.mark.parametrize(
    ("level", "says"),
    [
        (Level(0, False), "as none,"),
        (Level(2, True), "as landlock-2+seccomp,"),
        (Level(4, False), "landlock-4,"),
    ],
)
def test_kernel_that_confines_too_little_is_wrong(level: Level, says: str) -> None:
    """What would run Workers all the same is named."""
    finding = only(findings.judge_confinement(Confinement(level, level, None, 40)), "wrong")
    assert says in finding.what
    assert "kernel_enforcement='best_effort'" in finding.do


def test_launcher_that_does_not_start_is_wrong() -> None:
    """Its reason is reported."""
    error = ConfigError("can't start a confined process: no room; make some")
    finding = only(findings.judge_confinement(replace(FULL, tried=None, failure=error)), "wrong")
    assert (finding.what, finding.do) == ("can't start a confined process: no room", "make some")


@pytest.mark.parametrize(
    ("level", "held", "left"),
    [
        (Level(7, True), ["make, change", "shorten", "signal", "modes"], ["TCP"]),
        (Level(3, True), ["make, change", "shorten", "modes"], ["TCP", "signal"]),
        (Level(2, True), ["make, change", "modes"], ["TCP", "shorten", "signal"]),
        (Level(7, False), ["make, change", "shorten", "signal"], ["TCP", "modes"]),
        (Level(0, False), [], ["anything"]),
    ],
)
def test_each_level_says_what_holds_and_what_does_not(level: Level, held: list[str], left: list[str]) -> None:
    """No level is promised more than its ABI keeps."""
    confinement = Confinement(level, level, None, 1)
    for words in ("make, change", "shorten", "signal", "modes", "TCP", "anything"):
        assert any(words in line for line in confinement.holds()) == (words in held), words
        assert any(words in line for line in confinement.leaves()) == (words in left), words


def test_trial_that_got_less_than_was_offered_counts() -> None:
    """What is asked to hold is what a process really had."""
    assert Confinement(Level(7, True), Level(0, False), None, 1).holds() == []


def test_little_shared_memory_is_slow_not_wrong() -> None:
    """Ray then takes the temporary directory."""
    assert "64 MiB" in only(findings.judge_limits(SystemLimits(64 * 2**20, None)), "beware").what


@pytest.mark.parametrize(("most", "mark"), [(4095, "beware"), (64, "beware"), (63, "wrong")])
def test_few_descriptors_are_told(most: int, mark: str) -> None:
    """Few mean few hosts; too few mean no Ray at all."""
    assert f"may open {most:,} files" in only(findings.judge_limits(SystemLimits(None, most)), mark).what


@pytest.mark.parametrize(
    ("mode", "journal_mode", "may"),
    [
        (0o755, 0o600, "see what is"),
        (0o750, 0o640, "read the journal"),
        (0o777, 0o600, "replace or remove"),
    ],
)
def test_open_directory_says_what_others_may(mode: int, journal_mode: int, may: str) -> None:
    """The command that closes it can be pasted."""
    finding = only(findings.judge_state(state(mode=mode, journal_mode=journal_mode)), "beware")
    assert may in finding.what
    assert finding.do == "chmod 700 '/state/of mine'"


def test_directory_nobody_can_use_is_wrong() -> None:
    """Another one is asked for."""
    assert "--state-dir" in only(findings.judge_state(state(is_usable=False)), "wrong").do


def test_damage_is_wrong_and_a_damaged_tree_is_not() -> None:
    """A journal that can't be read keeps everybody from running; one tree of it only itself."""
    error = JournalCorrupt("journal.db", "its header is damaged; restore it from a backup")
    finding = only(findings.judge_state(state(failure=error, trees=None)), "wrong")
    assert finding.do == "restore it from a backup"
    names = tuple(f"t{number}" for number in range(7))
    finding = only(findings.judge_state(state(damaged_trees=names)), "beware")
    assert finding.what.endswith("t0, t1, t2, t3, t4 and 2 more")


def test_lock_without_a_door_is_wrong() -> None:
    """Whoever holds the journal is named."""
    assert "process 77 holds" in only(findings.judge_absence(state(writer=77)), "wrong").what


@pytest.mark.parametrize("confinement", ["none", "landlock-2+seccomp", "landlock-7", "structural"])
def test_worker_that_is_confined_too_little_is_told(confinement: str) -> None:
    """Best effort is seen where it happens."""
    host = ActorRow("observing2", "observing", 30, confinement, "t1", "main/w1", 1)
    assert f"only as far as {confinement}" in only(findings.judge_runtime(live(host)), "beware").what


@pytest.mark.parametrize(("is_private", "does"), [(True, "insecure=True"), (False, "RAY_AUTH_MODE=token")])
def test_ray_without_authentication_is_told(is_private: bool, does: str) -> None:
    """Who started it decides what to change."""
    found = findings.judge_runtime(live(private=is_private, auth_mode="disabled"))
    assert does in only(found, "beware").do


def test_token_that_others_can_read_is_told() -> None:
    """Its file and mode are named."""
    found = findings.judge_runtime(live(token_path="/home of mine/auth_token", token_mode="0644"))
    finding = only(found, "beware")
    assert "mode 0644" in finding.what
    assert finding.do == "chmod 600 '/home of mine/auth_token'"
    assert list(findings.judge_runtime(live(token_path="/auth_token", token_mode="0600"))) == []


def test_keys_that_a_ray_inherited_are_reported() -> None:
    """By their names; whoever started that Ray gave them to it."""
    finding = only(findings.judge_runtime(live(private=False, key_variables=["A_KEY", "B_TOKEN"])), "beware")
    assert "A_KEY, B_TOKEN" in finding.what
    assert "start it without them" in finding.do


def test_starts_that_failed_are_told() -> None:
    """How many, and which the last was."""
    failed = ["memory: it ended", "acting-1: its process (7) ended while it started"]
    finding = only(findings.judge_runtime(live(failed_starts=failed)), "beware")
    assert "2 of the last starts failed, the last of acting-1: its process (7) ended" in finding.what


def test_what_listens_is_told_with_the_rule_against_it() -> None:
    """Process, address and port, and a firewall's rule for all ports."""
    finding = only(findings.judge_runtime(live(private=False, listening=[SERVER, RAYLET])), "beware")
    assert "gcs_server (pid 11) on [::]:6379, raylet (pid 12) on 0.0.0.0:34567" in finding.what
    assert 'iifname != "lo" tcp dport { 6379, 34567 } drop; } }' in finding.do
    assert "private Ray listens to this machine alone" in finding.do


def test_cluster_lets_its_own_machines_in() -> None:
    """A rule that cut the cluster apart would be no help."""
    finding = only(findings.judge_runtime(live(private=False, nodes=3, listening=[RAYLET])), "beware")
    assert "ip saddr != { their addresses } tcp dport { 34567 } drop" in finding.do
    assert "private Ray" not in finding.do


NODE = NodeReport(
    "10.0.0.2 (abcdef01)",
    alive=True,
    hosts=2,
    supervisors=1,
    sessiontree=GOOD.version,
    python=GOOD.python,
    ray=GOOD.ray,
    kernel="6.8.0",
    confinement="landlock-7+seccomp",
    is_confined=True,
    bubblewrap="0.9.0",
)


def judged(*nodes: NodeReport, **security: Any) -> list[Finding]:
    """Return what is wrong with a cluster that is in order but for what is given."""
    joined = {**QUIET_RAY, "private": False, "nodes": len(nodes), **security}
    return list(findings.judge_cluster(ClusterReport("10.0.0.1:6379", joined, nodes), GOOD))


def test_cluster_in_order_has_no_findings() -> None:
    """Not for a dashboard on the loopback interface either."""
    assert judged(NODE, NODE) == []
    for dashboard in ("127.0.0.1:8265", "http://localhost:8265", "[::1]:8265"):
        assert judged(NODE, dashboard=dashboard) == [], dashboard


@pytest.mark.parametrize(
    ("changes", "mark", "says"),
    [
        ({"failure": "it did not answer within 30 s"}, "wrong", "did not answer within 30 s"),
        ({"alive": False, "failure": "it left the cluster"}, "beware", "left the cluster"),
        ({"sessiontree": "0.0.9"}, "wrong", "sessiontree 0.0.9 instead of 0.1.0"),
        ({"python": "3.13.0"}, "wrong", "Python 3.13.0 instead of 3.12.1"),
        ({"ray": "2.61.0"}, "wrong", "Ray 2.61.0 instead of 2.60.0"),
        ({"is_confined": False, "confinement": "structural"}, "wrong", "its kernel offers structural"),
        ({"is_confined": False, "confinement_failure": "no shell"}, "wrong", "no shell"),
        ({"bubblewrap": None, "command_failure": "bwrap is missing"}, "beware", "bwrap is missing"),
        ({"key_variables": ("A_KEY",)}, "beware", "may hold keys: A_KEY"),
        ({"listening": (RAYLET,)}, "beware", "raylet of 10.0.0.2 (abcdef01) (pid 12) on 0.0.0.0:34567"),
    ],
)
def test_node_that_is_not_in_order_is_named(changes: dict[str, Any], mark: str, says: str) -> None:
    """With what is wrong there; the other nodes are not."""
    found = only(judged(NODE, replace(NODE, **changes)), mark)
    assert says in found.what
    assert NODE.node in found.what


@pytest.mark.parametrize("dashboard", ["0.0.0.0:8265", "10.0.0.1:8265", "http://head:8265", "[::]:8265"])
def test_dashboard_that_others_reach_is_reported(dashboard: str) -> None:
    """With the options of the head that close it."""
    found = only(judged(NODE, dashboard=dashboard), "beware")
    assert dashboard in found.what
    assert "--dashboard-host=127.0.0.1" in found.do


def test_cluster_without_authentication_is_reported_once() -> None:
    """Not once for each node."""
    assert "asks for no token" in only(judged(NODE, NODE, NODE, auth_mode="disabled"), "beware").what
