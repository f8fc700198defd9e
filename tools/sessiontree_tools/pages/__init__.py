"""Tools for pages: write, check, show and publish them."""
