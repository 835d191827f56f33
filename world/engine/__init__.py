"""The one writer: commands, effects between commits, events for subscribers."""
