"""Untrusted Python code in a child process of its own: the process, the program that runs in it, its effects."""
