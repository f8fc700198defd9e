"""What travels to hosts and gateway as it is: tools and models, from the creating program alone.

Packed once by the program, carried unopened by the supervisor. Nothing that a model, a tool or a client said
is ever packed or opened so.
"""

from __future__ import annotations

import copyreg
import dataclasses
import os
from pathlib import Path
from typing import Any

from ray import cloudpickle

from sessiontree.contracts.errors import ConfigError, words_of
from sessiontree.contracts.hooks import name_of
from sessiontree.dispatch.hooks import HookChain
from sessiontree.interpreter.import_guard import add_copy
from sessiontree.models.port import GatewayModel
from sessiontree.policy.compiled import compiled
from sessiontree.protected import own_places
from sessiontree.runtime.host import HostEquipment
from sessiontree.runtime.tree_resources import Baggage, TreeSetup
from sessiontree.web.web import OutboundWeb

# A dataclass that travels by value must find the very mark of a missing default where it arrives, not a copy.
copyreg.pickle(type(dataclasses.MISSING), lambda mark: "MISSING")


def pack(setup: TreeSetup, *, hidden: tuple[Path, ...]) -> Baggage:
    """Pack a tree's tools and models.

    Raises:
        ConfigError: something can't travel, or the web's settings are no good; says what.
    """
    if setup.web is not None:
        OutboundWeb(setup.web)  # so that a wrong setting is told here, and not by every host
    for entry in setup.table:
        _packed(entry.tool, f"tool {entry.name!r}")
    for hook in setup.hooks:
        _packed(hook, f"hook {name_of(hook)!r}")
    shared = (setup.table, setup.instant, hidden, setup.web, setup.policy, setup.group, setup.model_name)
    return Baggage(
        _packed((*shared, setup.hooks, own_places()), "the model"),
        None if setup.waiting is None else _packed(setup.waiting, "the model"),
    )


def with_program(baggage: Baggage, program: Path | None) -> Baggage:
    """Return baggage whose modules are found in a copy of the program's."""
    place = b"" if program is None else os.fsencode(program)
    for_gateway = baggage.for_gateway
    return Baggage(
        place + b"\0" + baggage.for_hosts, None if for_gateway is None else place + b"\0" + for_gateway
    )


def open_for_host(packed: bytes) -> HostEquipment:
    """Unpack what a host gets."""
    table, instant, hidden, web, policy, group, model_name, hooks, own = _opened(packed)
    reads = None if web is None else OutboundWeb(web)
    chain = HookChain.for_hosts(hooks)
    rules = compiled(table.rows, policy)
    both = own.joined(own_places())  # of the program, and of a host, which may lie on another machine
    return HostEquipment(table, instant, hidden, reads, rules, group, model_name, chain, both)


def open_for_gateway(packed: bytes) -> GatewayModel:
    """Unpack what the gateway gets."""
    model: GatewayModel = _opened(packed)
    return model


def _packed(value: object, name: str) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    except Exception as error:  # objects of the program fail to pack in any way they like
        raise ConfigError(
            f"{name} can't travel to the processes of the tree: {words_of(error)}; "
            "keep locks, connections and loops out of it, or use backend='local'"
        ) from error
    return data


def _opened(packed: bytes) -> Any:
    program, _, value = packed.partition(b"\0")
    if program:
        add_copy(os.fsdecode(program))
    return cloudpickle.loads(value)
