"""Static checks of policies."""
