"""The surveyed directory: its files, languages, symbols, and the records made of them."""
