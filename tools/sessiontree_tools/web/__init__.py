"""Tools for the web: search, pages, requests and the browser."""
