"""Installed as ``_sessiontree_site.py``; ``sessiontree.pth`` next to it loads it in every interpreter.

``import sessiontree`` always means the installed package, even if the working directory or the script's
directory holds one of that name. This is the first import of a program; ``import_guard.py`` then guards the
others. This module handles no other name and imports nothing.
"""

import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import PathFinder, SourceFileLoader

NAMES = frozenset({"sessiontree", "sessiontree_tools"})
PLACES: "dict[str, str]" = {}
"""Package directories of an editable install, by name; ``.ci/setup.py`` fills it in."""
_HERE = __file__.rpartition("/")[0]


class InstalledFirst:
    """Finds the packages of this distribution in their installed place, and nothing else."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Return the installed package of a name, before anything on the path is looked at."""
        if path is not None or name not in NAMES:
            return None
        if name in PLACES:
            return _make_package_spec(name, PLACES[name])
        for finder in sys.meta_path:
            if getattr(finder, "__name__", "") == "RedirectingFinder":  # the finder of an editable install
                found = finder.find_spec(name, None)
                if found is not None:
                    return found
        return PathFinder.find_spec(name, [_HERE])


def _make_package_spec(name: str, place: str) -> ModuleSpec:
    file = f"{place}/__init__.py"
    spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file, is_package=True)
    spec.submodule_search_locations = [place]
    spec.has_location = True
    return spec


sys.meta_path.insert(0, InstalledFirst)
