"""By which authority an actor's proposals are judged."""
