"""Jobs of one session: commands in the background, their output, and what their terminals show."""
