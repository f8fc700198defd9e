"""What runs inside the confined process of the interpreters; it imports nothing else of the package."""
