"""Effects as actions request them."""
