"""Which traces a runtime exports, and where to."""
