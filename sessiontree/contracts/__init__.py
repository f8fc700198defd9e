"""The words of the house: values, errors, facts and ports that every floor above may use.

Room: floor 0; stands on the standard library and pydantic alone.
Not here: anything that decides, reads a file, or waits.
"""
