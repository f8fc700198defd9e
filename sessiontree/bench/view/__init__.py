"""Runs to look at: their samples as rows of a page, live on a local server or frozen in a folder of files."""
