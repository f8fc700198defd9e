"""Memory between processes: its interface, its service, and one store for several programs."""
