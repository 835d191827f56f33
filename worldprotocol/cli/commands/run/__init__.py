"""Commands that govern programs."""
