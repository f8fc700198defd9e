"""One attempt at a sample: its workspace, its tree, its time, and what its end means."""
