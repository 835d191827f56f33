"""Effects as actions request them, and a host for trials that answers them."""
