"""What ``worldctl doctor`` checks."""
