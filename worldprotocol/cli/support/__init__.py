"""What several commands of `worldctl` share."""
