"""Settings that an owner or a program gives, and the one edge that checks them."""
