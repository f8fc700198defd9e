"""Transport: the interfaces and frames between the processes of a runtime, and progress for watchers."""
