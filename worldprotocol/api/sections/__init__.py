"""Sections of ``world.toml`` that have a module of their own."""
