"""Time: the runtime's clock, limits of what waits, and how long a tree only waited."""
