"""The shared vocabulary: values, errors, facts and ports that every other package may use.

Floor 0, over ``interpreter``. Imports the standard library and pydantic only.
Not here: anything that decides, reads a file, or waits.
"""
