"""HTML templates."""
