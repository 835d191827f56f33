"""Feeds: events of a log, delivered in order to another program or to a file, each exactly once by its position.

A feed is an event consumer (``worldprotocol.api.consumers``). Its position and what is under way are in a database of
its own (``worldprotocol.export.feeds.state``). Lines of a file and the position are committed together. A request to a
receiver cannot be: the same message is sent again, with the same ``webhook-id``, until the receiver has confirmed it
and the position is committed, so a receiver that remembers ids takes each message once. Messages are sent one after
the other; one that is not accepted delays those after it, and none is left out.
"""
