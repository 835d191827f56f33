"""What commands that audit logs have in common: the logs that they name, and the processes that they use."""
