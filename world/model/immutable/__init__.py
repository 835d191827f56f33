"""Values that share their unchanged parts with the values that they were made from."""
