"""The state folded from the events: realm, proposals, and the ports to the rooms."""
