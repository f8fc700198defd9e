"""The program's side: how it reaches its supervisor, and what crosses between processes."""
