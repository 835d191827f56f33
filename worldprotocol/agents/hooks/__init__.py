"""Hooks of coding agents: one adapter for each, with its events and answers."""
