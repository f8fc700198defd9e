"""A provider on loopback for tests: it uses the wire forms of five providers and sends scripted replies."""
