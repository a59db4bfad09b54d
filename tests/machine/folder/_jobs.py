"""What a job of this folder can be told to do."""

import os
import subprocess
import time
from pathlib import Path


def work(ctx):
    for order in ctx["what"].split():
        kind, _, argument = order.partition(":")
        ORDERS[kind](argument)


def hog(megabytes):
    kept = [bytearray(b"x" * 1_000_000) for _ in range(int(megabytes))]
    print(len(kept))


def leave(seconds):
    """Leave a program behind that moved out of the session."""
    subprocess.Popen(["setsid", "sleep", seconds])


def tell(what):
    print(TOLD[what](), flush=True)


TOLD = {"groups": Path("/proc/self/cgroup").read_text, "names": lambda: sorted(os.environ)}
ORDERS = {"sleep": lambda seconds: time.sleep(float(seconds)), "hog": hog, "leave": leave, "tell": tell}
