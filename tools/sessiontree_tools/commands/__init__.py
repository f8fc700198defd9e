"""Tools for commands and the machines that they run on."""
