"""The commands of `worldctl`, one module each."""
