"""Values without rights or rules: JSON, messages, names, and texts that are cut or marked."""
