"""Places in a workspace that decide which code runs outside it: the one list of them.

Room: floor 2. What processes of ours import from, and what tells git which programs to run. File tools ask
before they change such a place, commands find it read-only.
Not here: refusing (workspace), mounting (sandbox), asking (dispatch).
"""

from sessiontree.protected.own_places import OwnPlaces, own_places
from sessiontree.protected.protected_places import ProtectedPlaces, Seen, protected_places

__all__ = ["OwnPlaces", "ProtectedPlaces", "Seen", "own_places", "protected_places"]
