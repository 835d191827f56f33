"""Commands for other implementations of the specifications."""
