"""The protected places of a workspace: the places that decide which code runs outside it.

Floor 2, over ``session``. They are the places that the runtime's processes import from, and the settings that
name the programs that git runs. File tools ask before they change such a place, and commands see it as
read-only.
Not here: refusing (``workspace``), mounting (``sandbox``), or asking (``dispatch``).
"""

from sessiontree.protected.own_places import OwnPlaces, own_places
from sessiontree.protected.protected_places import ProtectedPlaces, Seen, find_protected_places

__all__ = ["OwnPlaces", "ProtectedPlaces", "Seen", "find_protected_places", "own_places"]
