"""Serialization between the processes of one runtime, and of a tree's tools and models.

Only processes that the runtime started write and read the bytes of :func:`packed`. In these, everything that
a model, a tool or a client said is plain text. Tools and models come from the creating program only: the
program packs them once, and the supervisor passes them on without opening them.
"""

from __future__ import annotations

import copyreg
import dataclasses
import io
import os
import pickle
import zlib
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from ray import cloudpickle

from sessiontree.backends.ray.commands.cluster_nodes import ClusterNodes
from sessiontree.contracts.errors import ConfigError, describe_error
from sessiontree.contracts.tools.hooks import get_hook_name
from sessiontree.dispatch.hook_chain import HookChain
from sessiontree.interpreter.import_guard import add_copy
from sessiontree.models.api_key import collect_packed_keys
from sessiontree.models.port import GatewayModel, list_libraries
from sessiontree.policy.compiled import compile_policy
from sessiontree.protected import OwnPlaces, own_places
from sessiontree.runtime.host.host import HostResources
from sessiontree.runtime.supervisor.tree_resources import PackedResources, TreeResources
from sessiontree.web.web import OutboundWeb


def dump_value(value: Any) -> bytes:
    """Return a value as bytes."""
    return pickle.dumps(value, 5)


def load_value(data: bytes | memoryview) -> Any:
    """Return the value of bytes that another process of this runtime packed."""
    return pickle.loads(data)  # noqa: S301 - only processes of this runtime make these bytes


_SURROUNDINGS: Final = "__pydantic_parent_namespace__"
# A dataclass that is pickled by value must find the original mark of a missing default, not a copy of it.
copyreg.pickle(type(dataclasses.MISSING), lambda mark: "MISSING")


def pack(setup: TreeResources, *, hidden: tuple[Path, ...]) -> PackedResources:
    """Pack a tree's tools and models.

    Raises:
        ConfigError: a value cannot be pickled, or the settings of the web are not valid.
    """
    if setup.web is not None:
        OutboundWeb(setup.web)  # reports a wrong setting here and not in every host
    shared = (setup.table, setup.instant, hidden, setup.web, setup.policy, setup.group, dict(setup.skills))
    # Bytes of their own: most hosts never open it, and it imports much.
    configuration = None if setup.configuration is None else dump_value(setup.configuration)
    try:
        for_hosts = pack_value((*shared, setup.hooks, _pack_places(own_places()), configuration), "the model")
    except ConfigError:  # the error names the tool or the hook, if it is one
        for entry in setup.table:
            pack_value(entry.tool, f"tool {entry.name!r}")
        for hook in setup.hooks:
            pack_value(hook, f"hook {get_hook_name(hook)!r}")
        raise
    with collect_packed_keys() as keys:
        for_gateway = pack_value(setup.waiting, "the model") if setup.waiting else None
    names = tuple(dict.fromkeys(each.name for each in keys))
    libraries = dict.fromkeys(place for each in setup.waiting.values() for place in list_libraries(each))
    return PackedResources(
        for_hosts, for_gateway, keys=names, servers=setup.servers, libraries=tuple(libraries)
    )


@lru_cache(maxsize=8)
def _pack_places(own: OwnPlaces) -> bytes:
    """Return a program's places in few bytes: thousands of paths, which nearly all its trees share."""
    return zlib.compress(dump_value(own), 6)


@lru_cache(maxsize=8)
def _read_places(data: bytes) -> OwnPlaces:
    """Return the places of a program; those of its trees are one object."""
    own: OwnPlaces = load_value(zlib.decompress(data))
    return own


def add_program(
    resources: PackedResources, program: Path | None, places: bytes | None = None
) -> PackedResources:
    """Return resources that import the program's modules from a copy, for hosts on these nodes."""
    place = b"" if program is None else os.fsencode(program)
    for_gateway = resources.for_gateway
    return PackedResources(
        place + b"\0" + resources.for_hosts,
        None if for_gateway is None else place + b"\0" + for_gateway,
        places,
        servers=resources.servers,
        libraries=resources.libraries,
    )


def set_copy_folder(packed: bytes, folder: Path) -> bytes:
    """Return resources whose modules are imported from a copy in another folder, on another node."""
    program, _, value = packed.partition(b"\0")
    place = os.fsencode(folder / Path(os.fsdecode(program)).name) if program else b""
    return place + b"\0" + value


def open_for_host(packed: bytes) -> HostResources:
    """Unpack a tree's resources for hosts."""
    table, instant, hidden, web, policy, group, skills, hooks, places, configuration = _unpickle(packed)
    reads = None if web is None else OutboundWeb(web)
    chain = HookChain.for_hosts(hooks)
    rules = compile_policy(table.rows, policy)
    both = _read_places(places).joined(
        own_places()
    )  # those of the program and of this host, perhaps on another machine
    nodes = ClusterNodes()
    return HostResources(
        table,
        instant,
        hidden,
        reads,
        rules,
        group,
        chain,
        both,
        skills,
        nodes,
        "ray",
        None if configuration is None else partial(load_value, configuration),
    )


def open_for_gateway(packed: bytes) -> Mapping[str, GatewayModel]:
    """Unpack a tree's models for the gateway, by the agents for which they answer."""
    models: Mapping[str, GatewayModel] = _unpickle(packed)
    return models


class _ProgramPickler(cloudpickle.CloudPickler):
    """Pickles the program's objects, and of a pydantic model not the variables around its definition.

    Pydantic keeps the local variables of the function in which a model was defined, for names that could not
    be resolved yet. An open tree or runtime may be one of them, and it can't be pickled.
    """

    def reducer_override(self, obj: Any) -> Any:
        """Return how an object is pickled."""
        made: Any = super().reducer_override(obj)  # type: ignore[no-untyped-call]
        if isinstance(obj, type) and _SURROUNDINGS in vars(obj) and isinstance(made, tuple):
            members, _ = made[2]
            members[_SURROUNDINGS] = None
        return made


def pack_value(value: object, name: str) -> bytes:
    """Return an object of the program as bytes.

    Args:
        value: The object.
        name: What it is, for the error.

    Raises:
        ConfigError: it can't be pickled.
    """
    data = io.BytesIO()
    try:
        _ProgramPickler(data).dump(value)  # type: ignore[no-untyped-call]
    except Exception as error:  # objects of the program may raise anything
        raise ConfigError(
            f"can't pickle {name} for the processes of the tree: {describe_error(error)}; "
            "keep locks, connections and loops out of it, or use backend='local'"
        ) from error
    return data.getvalue()


def _unpickle(packed: bytes) -> Any:
    program, _, value = packed.partition(b"\0")
    if program:
        add_copy(os.fsdecode(program))
    return cloudpickle.loads(value)
