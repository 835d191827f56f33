"""Kinds of governed runs, and how they end."""

from __future__ import annotations

from typing import Literal

__all__ = ["Kind", "Outcome"]

Kind = Literal["python", "command"]
Outcome = Literal["completed", "failed", "violated", "lost", "interrupted"]
