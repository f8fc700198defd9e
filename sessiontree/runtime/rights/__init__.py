"""Rights: which tools and handles a session may hold, and what is known about its commands."""
