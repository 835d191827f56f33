"""World Protocol: the roof over the rooms, and what people import and run."""
