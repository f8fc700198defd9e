"""Containers: commands in a container that an engine such as podman or docker starts."""
