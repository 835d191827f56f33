"""Python code of users: its identity, where it is found, and its time limit."""
