"""A worker that ignores SIGTERM, answers once, reads nothing more, and never ends by itself."""

import json
import signal
import sys
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
command = json.loads(sys.stdin.readline())
print(json.dumps({"type": "pong", "id": command.get("id")}), flush=True)
while True:
    time.sleep(60)
