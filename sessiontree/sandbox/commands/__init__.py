"""Commands: their plan, bounds, environment and process, confined or not."""
