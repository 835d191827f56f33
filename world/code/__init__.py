"""Python code of users: identity, loading and time limits."""
