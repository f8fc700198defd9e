"""The gateway to models: it holds their keys, and questions wait there for a budget."""
