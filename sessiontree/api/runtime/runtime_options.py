"""The options of a runtime, and of what is served by one, each described once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict

from pydantic import AfterValidator, Field

from sessiontree.api.telemetry.telemetry import TelemetryLike
from sessiontree.contracts.settings.given_values import Choice, Give, Instance, Natural, Parts, Toggle
from sessiontree.memory.settings import MemorySettings

BackendName: TypeAlias = Literal["ray", "local"]
"""``ray`` gives each running session a process of its own; ``local`` runs all in this process."""
Enforcement: TypeAlias = Literal["required", "best_effort"]
"""Whether the kernel must confine read-only processes, or may where it can."""
MAX_SHARDS: Final = 64
MAX_TREE_CPUS: Final = 64
TREE_CPUS: Final = 0.25
"""CPUs of the cluster for each open tree, by default: a node has four hosts for each of its CPUs."""
LEAST_HOST_BYTES: Final = 128 * 2**20
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _check_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name) or name.startswith("PYTHON"):
        raise ValueError(name)
    return name


Shards: TypeAlias = Annotated[
    Annotated[int, Field(ge=1, le=MAX_SHARDS)] | Literal["per-node"],
    Give(f"a whole number from 1 to {MAX_SHARDS}, or 'per-node' on a cluster"),
]
"""Maximum number of supervisors, or one on each node of the cluster."""
Backends: TypeAlias = Annotated[BackendName, Choice()]
"""The name of a backend that a program gives."""
_Variable: TypeAlias = Annotated[
    str,
    AfterValidator(_check_variable),
    Give("the name of an environment variable; Python's own choose code and stay outside"),
]


class ServedOptions(TypedDict, total=False):
    """What runs sessions: the same for a runtime and for a tree that starts one."""

    backend: Backends
    """``ray``, the default: sessions are actors on the Ray that the program has initialised, or on a private
    one that ends with the runtime; ``local``: everything runs in this process."""
    slots: Annotated[
        Annotated[int, Field(ge=1)] | None, Give("a whole number of at least 1, or None for the default")
    ]
    """Maximum sessions in hosts at a time (``ray``: for each pool); None = the backend's default."""
    memory: Annotated[MemorySettings | None, Instance("MemorySettings, or None")]
    """Place of memory and embedder of its texts; None = in the state directory, with texts compared by their
    words."""


class RuntimeOptions(ServedOptions, total=False):
    """How a runtime runs its trees."""

    address: Annotated[str | None, Give("host:port, 'auto' or None")]
    """Cluster to connect to, as ``host:port`` or ``auto``. Only ``ray``."""
    num_cpus: Annotated[Natural | None, Give("a whole number, at least 0, or None")]
    """CPUs of a private Ray; None counts the machine's. Only ``ray``."""
    insecure: Toggle
    """Allow a private Ray without authentication if ``RAY_AUTH_MODE=disabled`` is set."""
    kernel_enforcement: Annotated[Enforcement, Choice()]
    """``required``, the default: no Worker runs if the kernel can't make its process read-only;
    ``best_effort``: it runs with the available confinement, which its status reports. Only ``ray``."""
    max_host_bytes: Annotated[
        Annotated[int, Field(ge=LEAST_HOST_BYTES)] | None,
        Give(f"a whole number of at least {LEAST_HOST_BYTES:,}, which a host needs for itself, or None"),
    ]
    """Maximum private memory of one session's host, in bytes; a host that exceeds it ends together with its
    session. None = 2 GiB. Only ``ray``."""
    pass_env: Annotated[Sequence[_Variable], Parts("names in a list, such as ['HF_TOKEN']")]
    """Names of environment variables that tools get in addition to harmless ones such as ``PATH`` and
    ``LANG``; only the program and its model get the program's keys. Only ``ray``."""
    tree_id: Annotated[str | None, Give("the id of a tree, or None")]
    """Write the journal that holds this tree, to resume it; None = the first unused journal."""
    shards: Shards
    """Maximum number of supervisors for new trees, 1 by default, each with a journal and hosts of its own;
    begun as trees need them. A tree is wholly in one of them. ``per-node`` = one on each node of the cluster,
    also on nodes that join later, in the directory that is at ``state_dir`` there. Only ``ray``."""
    placement: Annotated[
        Mapping[str, Mapping[str, Any]] | None,
        Instance("a mapping such as {'worker': {'num_cpus': 1}}, or None"),
    ]
    """Where Workers and Branches run on a cluster, such as ``{"worker": {"num_cpus": 1, "resources":
    {"fast_disk": 1}, "label": {"zone": "spot"}}}``: on nodes with these labels and resources that have the
    same directory at the workspace's path. Main, and kinds that are not named, run on this node. Only ``ray``
    on a cluster."""
    shard_label: Annotated[Mapping[str, str] | None, Instance("a mapping such as {'zone': 'spot'}, or None")]
    """With ``shards="per-node"``: only nodes whose labels fulfil these conditions get trees, such as
    ``{"zone": "spot"}`` or ``{"zone": "!spot"}``. None = all nodes."""
    tree_cpus: Annotated[
        Annotated[float, Field(ge=0, le=MAX_TREE_CPUS, allow_inf_nan=False)],
        Give(f"a number of CPUs from 0 to {MAX_TREE_CPUS}"),
    ]
    """With ``shards="per-node"``: how many CPUs of the cluster Ray counts as used by each open tree, 0.25 by
    default, so that an autoscaler sees demand. 0 = none."""
    telemetry: Annotated[TelemetryLike, Instance("Telemetry(…), True, False, or None")]
    """How its trees are traced by OpenTelemetry. None = if the program has set a tracer provider, or if the
    standard ``OTEL_*`` variables name a collector; True = in any case; False = never."""
    log: Annotated[Literal["json"] | None, Give("'json', or None")]
    """``json``: write the package's log records, and a line for whatever ends in its trees, as JSON lines to
    standard error. None = as the variable ``SESSIONTREE_LOG`` says."""
