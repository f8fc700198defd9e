"""The supervisor in a process of its own: its keys, its opening and end, and the resources of its trees."""
