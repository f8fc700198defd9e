"""Routes of the doors: which token a request comes with, and what is sent back."""
