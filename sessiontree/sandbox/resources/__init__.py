"""What commands share: the memory of the kernel that they take, and the turns in which they run.

Not here: what one process of a command may use (``command_plan.py``), and the watch (``command_bounds.py``).
"""
