"""Handlers of the operations, by resource; ``worldprotocol.server.operation_table`` declares them."""
