"""An agent that runs hooks as agents do: by a shell, with pipes for the event and the answer.

Usage: ``python plain_agent.py``. Each line of its stdin is an object with ``command``, ``event`` and ``waits``; it runs
the command, and if it waits, prints an object with ``code``, ``out`` and ``err`` when both pipes have ended.
"""

import json
import signal
import subprocess
import sys

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup

running = []
for line in sys.stdin:
    given = json.loads(line)
    hook = subprocess.Popen(
        ["/bin/sh", "-c", given["command"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if given["waits"]:
        out, err = hook.communicate(json.dumps(given["event"]))
        sys.stdout.write(json.dumps({"code": hook.returncode, "out": out, "err": err}) + "\n")
        sys.stdout.flush()
    else:
        assert hook.stdin is not None
        hook.stdin.write(json.dumps(given["event"]))
        hook.stdin.close()
        running.append(hook)  # its pipes stay open
