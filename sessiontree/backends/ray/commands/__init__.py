"""Commands on other nodes of a cluster."""
