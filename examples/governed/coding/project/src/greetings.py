"""Greets people."""


def greeting(name: str) -> str:
    """Return a greeting."""
    return "Helo, " + name + "!"
