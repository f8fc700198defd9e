"""What runs in the browser's process: Playwright, the tabs, and the orders of the host.

Only this directory, the standard library and Playwright can be imported there.
"""
