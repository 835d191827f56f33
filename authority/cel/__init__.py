"""CEL conditions of policy files."""
