"""The table of records in memory: rows, vectors, texts and words, kept equal to the table on the disk."""
