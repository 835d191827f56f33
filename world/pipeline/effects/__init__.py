"""Effects of executions: what is recorded of a result, and the claims of workers outside."""
