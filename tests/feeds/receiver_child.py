"""A receiver of webhooks in a process of its own, which waits at a place where a test kills it. It imports no package.

``receiver_child.py HOST PORT FILE STOP_AT PLACE``: it prints its port, appends each message to FILE as a JSON line, and
answers 204. At the request number STOP_AT of its life (counted from 1; 0 is never) it prints ``waiting`` and waits:

- ``received``: the request was read, and nothing was stored;
- ``stored``: the message was stored, and nothing was answered;
- ``answering``: a part of the answer was sent;
- ``answered``: the answer was sent.
"""

import base64
import json
import os
import signal
import socket
import sys

HOST, PORT, FILE, STOP_AT, PLACE = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Requests:
    """Those of this life."""

    count = 0


def stop(place: str) -> None:
    if Requests.count == STOP_AT and place == PLACE:
        print("waiting", flush=True)
        signal.pause()


def serve(connection: socket.socket) -> None:
    """Answer the requests of one connection."""
    with connection, connection.makefile("rb") as incoming:
        while incoming.readline():
            Requests.count += 1
            headers = {}
            while line := incoming.readline().strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            body = incoming.read(int(headers["content-length"]))
            stop("received")
            with open(FILE, "ab", buffering=0) as file:
                told = {"headers": headers, "body": base64.b64encode(body).decode()}
                file.write(json.dumps(told).encode() + b"\n")
                os.fsync(file.fileno())
            stop("stored")
            if Requests.count == STOP_AT and PLACE == "answering":
                connection.sendall(ANSWER[:12])
            stop("answering")
            connection.sendall(ANSWER)
            stop("answered")


with socket.socket() as listening:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((HOST, PORT))
    listening.listen()
    print(listening.getsockname()[1], flush=True)
    while True:
        serve(listening.accept()[0])
