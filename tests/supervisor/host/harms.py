"""What a routine can do to its own process, by accident or by a library: bodies of routines, by name.

Each ends by returning, unless what it does ends it before.
"""

from __future__ import annotations

import textwrap
from typing import Final

# The loop of the process, as a debugger would find it.
_LOOP: Final = """
def loop_of_this_process():
    try: return asyncio.get_running_loop()
    except RuntimeError: pass
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None:
        if isinstance(frame.f_locals.get('self'), asyncio.BaseEventLoop): return frame.f_locals['self']
        frame = frame.f_back
def boom(*a, **k): raise RuntimeError('boom')
loop = loop_of_this_process()
"""

_ALL: Final = {
    # The interpreter
    "len is gone": "import builtins; builtins.len = None",
    "isinstance is gone": "import builtins; del builtins.isinstance",
    "imports fail": "import builtins\ndef boom(*a, **k): raise RuntimeError('boom')\nbuiltins.__import__ = boom",
    "exceptions are gone": "import builtins; builtins.OSError = builtins.BaseException = None",
    "modules are forgotten": "sys.modules.clear()",
    "recursion of 10": "sys.setrecursionlimit(len(__import__('inspect').stack(0)) + 6)",
    "a slow switch": "sys.setswitchinterval(1000.0)",
    "a raising tracer": """
        def boom(*a): raise RuntimeError('boom')
        threading.settrace(boom)
        sys.settrace(boom)
        sys.setprofile(boom)
        threading.setprofile(boom)
    """,
    "no collector": "import gc; gc.disable(); gc.freeze(); gc.set_threshold(0)",
    "warnings are errors": "import warnings; warnings.simplefilter('error')",
    "no faulthandler": "import faulthandler; faulthandler.disable()",
    "an exit handler that hangs": "import atexit; atexit.register(time.sleep, 600)",
    "a write to address 0": "import ctypes; ctypes.memset(0, 1, 1)",
    "a hook that raises": """
        def boom(*a): raise RuntimeError('boom')
        sys.excepthook = threading.excepthook = sys.unraisablehook = boom
    """,
    "an audit hook that raises": """
        def boom(*a): raise RuntimeError('boom')
        sys.addaudithook(boom)
    """,
    # Limits of the process
    "8 descriptors": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))",
    "every descriptor is taken": """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        global taken
        taken = []
        try:
            while True: taken.append(os.dup(2))
        except OSError: pass
        sys.taken = taken
    """,
    "no address space": "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 24, 1 << 24))",
    "no data": "import resource; resource.setrlimit(resource.RLIMIT_DATA, (1 << 20, 1 << 20))",
    "no file may grow": "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
    "a file too large": """
        import resource, signal, tempfile
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL) if threading.current_thread() is threading.main_thread() else None
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        with tempfile.TemporaryFile() as file: os.write(file.fileno(), b'x')
    """,
    "no processes": "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))",
    "no CPU": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    "a small stack": "import resource; resource.setrlimit(resource.RLIMIT_STACK, (1 << 14, 1 << 14))",
    "no core": "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
    "nice 19": "os.nice(19)",
    "one core": "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
    "all memory": """
        import mmap, resource
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        sys.taken = []
        try:
            size = 1 << 30
            while size > 4096:
                try: sys.taken.append(mmap.mmap(-1, size))
                except (OSError, MemoryError): size //= 2
        except MemoryError: pass
    """,
    # Descriptors, signals, place
    "all descriptors are closed": "os.closerange(0, 1000)",
    "all descriptors are one": """
        for number in [int(each) for each in os.listdir('/proc/self/fd')]:
            try: os.dup2(os.open('/dev/null', os.O_RDWR), number)
            except OSError: pass
    """,
    "standard streams are closed": "os.close(0); os.close(1); os.close(2)",
    "garbage in every socket": """
        for number in [int(each) for each in os.listdir('/proc/self/fd')]:
            try:
                if os.readlink(f'/proc/self/fd/{number}').startswith('socket:'): os.write(number, b'\\xff' * 64)
            except OSError: pass
    """,
    "half a frame in every socket": """
        for number in [int(each) for each in os.listdir('/proc/self/fd')]:
            try:
                if os.readlink(f'/proc/self/fd/{number}').startswith('socket:'): os.write(number, b'\\0\\0\\1\\0[{')
            except OSError: pass
    """,
    "all signals are blocked": "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "a removed folder": "import tempfile; gone = tempfile.mkdtemp(); os.chdir(gone); os.rmdir(gone)",
    "another root": "import tempfile; os.chroot(tempfile.mkdtemp())",
    "a umask": "os.umask(0o777)",
    "no environment": "os.environ.clear()",
    "a session of its own": "os.setsid()",
    "a group of its own": "os.setpgid(0, 0)",
    "a fork that goes on": """
        if os.fork() == 0:
            if 'asyncio' in sys.modules: time.sleep(0.1)
    """,
    "a fork that stays": """
        if os.fork() == 0:
            time.sleep(600)
    """,
    # What libraries patch
    "send fails": "import socket\ndef boom(*a, **k): raise RuntimeError('boom')\nsocket.socket.send = boom",
    "recv fails": "import socket\ndef boom(*a, **k): raise RuntimeError('boom')\nsocket.socket.recv = boom",
    "no sockets": "import socket\ndef boom(*a, **k): raise RuntimeError('boom')\nsocket.socket = socket.socketpair = boom",
    "dumps fails": "import json\ndef boom(*a, **k): raise RuntimeError('boom')\njson.dumps = boom",
    "write fails": "def boom(*a, **k): raise RuntimeError('boom')\nos.write = os.read = os.pipe = boom",
    "exit fails": "def boom(*a, **k): raise RuntimeError('boom')\nos._exit = boom\nimport builtins; builtins.len = None",
    "no time": "def boom(*a, **k): raise RuntimeError('boom')\ntime.monotonic = time.time = boom",
    "time stands still": "time.monotonic = time.time = lambda: 0.0",
    "no threads": "def boom(*a, **k): raise RuntimeError('boom')\nthreading.Thread.start = boom",
    "no locks": "def boom(*a, **k): raise RuntimeError('boom')\nthreading.Lock = threading.Event = threading.Condition = boom",
    "no select": "import select, selectors\ndef boom(*a, **k): raise RuntimeError('boom')\nselect.poll = selectors.DefaultSelector = boom",
    "no programs": "import subprocess\ndef boom(*a, **k): raise RuntimeError('boom')\nsubprocess.Popen = boom",
    "no running loop": "def boom(*a, **k): raise RuntimeError('boom')\nasyncio.get_running_loop = asyncio.events.get_running_loop = boom",
    "the loop is stopped": _LOOP + "if loop: loop.call_soon_threadsafe(loop.stop)",
    "the loop is closed": _LOOP + "if loop: loop.close = None; loop._closed = True; loop._selector.close()",
    "the loop is broken": _LOOP + "if loop: loop._run_once = boom; loop.call_soon_threadsafe(print)",
    "the selector is broken": """
        import selectors
        def boom(*a, **k): raise RuntimeError('boom')
        for each in (selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector): each.select = boom
    """,
    "the loop's handler raises": _LOOP
    + """
if loop:
    loop.set_exception_handler(boom)
    loop.set_task_factory(boom)
    loop.call_soon_threadsafe(boom)
""",
    "a policy": "def boom(*a, **k): raise RuntimeError('boom')\nasyncio.set_event_loop_policy(None); asyncio.new_event_loop = boom",
    "all tasks are cancelled": _LOOP
    + """
for each in asyncio.all_tasks(loop) if loop else ():
    if each is not asyncio.current_task(loop): loop.call_soon_threadsafe(each.cancel)
""",
    # Threads and libraries
    "a thread that never ends": "threading.Thread(target=lambda: time.sleep(600)).start()",
    "an exit in a thread": "threading.Thread(target=sys.exit, args=(3,)).start()",
    "no logging": """
        import logging
        logging.disable(logging.CRITICAL)
        class Boom(logging.Handler):
            def emit(self, record): raise RuntimeError('boom')
        logging.root.addHandler(Boom())
        logging.raiseExceptions = True
        logging.Logger._log = None
    """,
    "a locale": "import locale; locale.setlocale(locale.LC_ALL, 'C')",
    "a decimal context": "import decimal; decimal.setcontext(decimal.Context(prec=1, traps=[decimal.Inexact]))",
    "a seed": "import random; random.seed(0); random.random = lambda: 0.0",
    "streams are gone": "sys.stdout = sys.stderr = None; sys.__stdout__ = sys.__stderr__ = None",
    "a lock that is kept": "import logging; logging._acquireLock() if hasattr(logging, '_acquireLock') else logging._lock.acquire()",
}

HARMS: Final = {name: textwrap.dedent(body) + "\nreturn events.coded()" for name, body in _ALL.items()}
