"""What a decision over 30 tools costs under a policy that says something at each of the nine steps.

Timed in one process, without a tree: a session's standing is made, the compiled policy is asked, and the
answer is met with the 30 names the session was spawned with, as it is whenever a session is taken up.

- `policy_us`: a decision for a standing that was asked before, as all but an agent's first session are.
- `policy_first_us`: a decision for one that was not: all steps are worked out over all tools.
- `compile_us`: a policy and its tools made into what is asked, slips looked for.
- `explain_us`: why a tool is gone.
- `bare_us`: a plain set met with the 30 names, and nothing else; `policy_ratio`: policy_us over it.

All are taken in turn, one of each after the other; medians of the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from benchmarks.report import read_options, show
from benchmarks.rounds import Rounds
from sessiontree.contracts.kinds import SessionKind
from sessiontree.policy.catalog import CATALOG
from sessiontree.policy.compiled import CompiledPolicy
from sessiontree.policy.settings import PolicyConfig, ProfiledTools, ToolLists, ToolPolicy
from sessiontree.policy.steps import Standing

ROWS = CATALOG[:30]
NAMES = tuple(row.name for row in ROWS)
EVERYTHING = ("*", "group:openclaw", "group:fs", "exec")
SCOPE = ToolPolicy(
    profile="coding",
    also_allow=("web_*", "memory_store"),
    allow=EVERYTHING,
    deny=("gateway", "Bash"),
    by_provider={"openai": ProfiledTools(profile="full", allow=EVERYTHING, deny=("canvas",))},
)
LISTS = ToolLists(allow=EVERYTHING, deny=("nodes", "sessions_s*"))
CONFIG = PolicyConfig(
    tools=SCOPE,
    agents={"clerk": SCOPE},
    groups={"family": LISTS},
    plugins={"radio": LISTS},
    sandbox=LISTS,
    subagents=LISTS,
)


def standing(agent: str) -> Standing:
    """Return what is known of one session when it is taken up."""
    return Standing(SessionKind.BRANCH, False, agent, "openai/gpt-5", "family")


def microseconds(work: Callable[[], object], times: int) -> float:
    """Return what one of so many repetitions took."""
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times * 1e6


def measure(*, quick: bool) -> dict[str, float]:
    """Return the figures.

    Raises:
        RuntimeError: the policy leaves nothing, or everything: then nothing is decided.
    """
    policy = CompiledPolicy(ROWS, CONFIG)
    held = frozenset(policy.decide(standing("clerk")).kept)
    if not 0 < len(held) < len(NAMES):
        raise RuntimeError(f"{len(held)} of {len(NAMES)} tools are held")
    taken = Rounds()
    fresh = 0

    def asked() -> object:
        return policy.decide(standing("clerk")).kept.intersection(NAMES)

    def asked_first() -> object:
        nonlocal fresh
        fresh += 1
        return policy.decide(standing(f"clerk {fresh}"))

    for _ in range(5 if quick else 15):
        taken.begin()
        taken.add("policy_us", microseconds(asked, 2_000))
        taken.add("bare_us", microseconds(lambda: held.intersection(NAMES), 2_000))
        taken.add("policy_first_us", microseconds(asked_first, 100))
        taken.add("explain_us", microseconds(lambda: policy.explain("exec", standing("clerk")), 200))
        taken.add("compile_us", microseconds(lambda: CompiledPolicy(ROWS, CONFIG), 20))
    names = ("policy_us", "bare_us", "policy_first_us", "explain_us", "compile_us")
    figures = {name: taken.median(name) for name in names}
    return {"tools": len(NAMES), **figures, "policy_ratio": figures["policy_us"] / figures["bare_us"]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options(__doc__.splitlines()[0] if __doc__ else "", arguments)
    show(measure(quick=options.quick), options)


if __name__ == "__main__":
    main()
