"""What programs use: trees, session handles, runtimes, the inbox of a person, options and paths."""
