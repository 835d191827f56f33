"""Adapters of agent frameworks, one module each; only that module imports the framework, which an extra installs."""
