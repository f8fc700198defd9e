"""What a suite is: its samples, where they work, and the environment they need."""
