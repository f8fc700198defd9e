"""The options of a runtime, and of what is served by one, each described once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from sessiontree.api.telemetry import TelemetryLike
from sessiontree.memory.settings import MemorySettings

BackendName: TypeAlias = Literal["ray", "local"]
Enforcement: TypeAlias = Literal["required", "best_effort"]
Shards: TypeAlias = int | Literal["per-node"]


class ServedOptions(TypedDict, total=False):
    """What runs sessions: the same for a runtime and for a tree that starts one."""

    backend: BackendName
    """``ray``, the default: sessions are actors on the Ray that the program has initialised, or on a private
    one that ends with the runtime; ``local``: everything runs in this process."""
    slots: int | None
    """Maximum sessions in hosts at a time (``ray``: for each pool); None = the backend's default."""
    memory: MemorySettings | None
    """Place of memory and embedder of its texts; None = in the state directory, with texts compared by their
    words."""


class RuntimeOptions(ServedOptions, total=False):
    """How a runtime runs its trees."""

    address: str | None
    """Cluster to connect to, as ``host:port`` or ``auto``. Only ``ray``."""
    num_cpus: int | None
    """CPUs of a private Ray; None counts the machine's. Only ``ray``."""
    insecure: bool
    """Allow a private Ray without authentication if ``RAY_AUTH_MODE=disabled`` is set."""
    kernel_enforcement: Enforcement
    """``required``, the default: no Worker runs if the kernel can't make its process read-only;
    ``best_effort``: it runs with the available confinement, which its status reports. Only ``ray``."""
    max_host_bytes: int | None
    """Maximum private memory of one session's host, in bytes; a host that exceeds it ends together with its
    session. None = 2 GiB. Only ``ray``."""
    pass_env: Sequence[str]
    """Names of environment variables that tools get in addition to harmless ones such as ``PATH`` and
    ``LANG``; only the program and its model get the program's keys. Only ``ray``."""
    tree_id: str | None
    """Write the journal that holds this tree, to resume it; None = the first unused journal."""
    shards: Shards
    """Maximum number of supervisors for new trees, 1 by default, each with a journal and hosts of its own;
    begun as trees need them. A tree is wholly in one of them. ``per-node`` = one on each node of the cluster,
    in the directory that is at ``state_dir`` there. Only ``ray``."""
    placement: Mapping[str, Mapping[str, Any]] | None
    """Where Workers and Branches run on a cluster, such as ``{"worker": {"num_cpus": 1, "resources":
    {"fast_disk": 1}, "label": {"zone": "spot"}}}``: on nodes with these labels and resources that have the
    same directory at the workspace's path. Main, and kinds that are not named, run on this node. Only ``ray``
    on a cluster."""
    telemetry: TelemetryLike
    """How its trees are traced by OpenTelemetry. None = if the program has set a tracer provider, or if the
    standard ``OTEL_*`` variables name a collector; True = in any case; False = never."""
    log: Literal["json"] | None
    """``json``: write the package's log records, and a line for whatever ends in its trees, as JSON lines to
    standard error. None = as the variable ``SESSIONTREE_LOG`` says."""
