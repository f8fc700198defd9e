"""Host processes: started, confined, placed on nodes, and reached."""
