"""Declarations of domains: checks of what a program declares, resources of effects, and confinement of actions."""
