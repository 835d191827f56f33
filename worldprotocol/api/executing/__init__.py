"""Processes that execute: their workspace, what they do when they open a realm, and workers on external effects."""
