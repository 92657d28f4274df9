"""start.py: what it installs and when, what it says when it can't, and how the notebook server ends.

pip and venv are played by a stand-in interpreter that writes down how it was called; everything else is real.
"""

import ast
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import start

ROOT = Path(start.__file__).resolve().parent
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX processes and signals")

STAND_IN = """#!{python}
import json, os, shutil, signal, sys, time
state, arguments = {state!r}, sys.argv[1:]
with open(state) as file:
    plan = json.load(file)
venv = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
marker = os.path.join(venv, "installed")
if arguments[-1] == "import ensurepip, venv":
    sys.exit(plan["no_venv_module"])
if arguments[:2] == ["-m", "venv"]:
    plan["venvs"] += 1
    os.makedirs(os.path.join(arguments[2], "bin"))
    shutil.copy(sys.argv[0], os.path.join(arguments[2], "bin", "python"))
elif arguments[-1] == "import pip":
    sys.exit(plan["broken"])
elif arguments[:2] == ["-I", "-c"]:
    installed = open(marker).read().split() if os.path.exists(marker) else []
    sys.exit(not set(arguments[3:]) <= set(installed))
elif arguments[:3] == ["-m", "pip", "install"]:
    plan["pip"].append(arguments[3:])
    answer = plan["answers"].pop(0) if plan["answers"] else ""
    if answer == "interrupt":
        plan["pid"] = os.getpid()
    elif answer:
        sys.stderr.write(answer)
    else:
        with open(marker, "w") as file:
            file.write("torch tracer jupyterlab ipykernel pytest")
    with open(state, "w") as file:
        json.dump(plan, file)
    if answer == "interrupt":
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
    sys.exit(bool(answer))
with open(state, "w") as file:
    json.dump(plan, file)
"""


class World:
    """A small project, and a stand-in for every interpreter that start.py runs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root = folder / "a project"
        (root / "notebooks").mkdir(parents=True)
        (root / "pyproject.toml").write_text('[project.optional-dependencies]\npretrained = ["g2p-en>=2.1"]\n')
        (root / "constraints.txt").write_text("# versions\ntorch==2.13.0\n")
        self.place, self.state = start.Place(str(root)), folder / "state.json"
        plan = {"pip": [], "venvs": 0, "answers": [], "broken": 0, "no_venv_module": 0, "pid": 0}
        self.state.write_text(json.dumps(plan))
        base = folder / "base" / "bin" / "python"
        base.parent.mkdir(parents=True)
        base.write_text(STAND_IN.format(python=sys.executable, state=str(self.state)))
        base.chmod(0o755)
        monkeypatch.setattr(start, "base_python", lambda: str(base))

    def plan(self, **changes: Any) -> None:
        self.state.write_text(json.dumps({**json.loads(self.state.read_text()), **changes}))

    @property
    def venvs(self) -> int:
        """How many environments were made."""
        return json.loads(self.state.read_text())["venvs"]

    @property
    def pip(self) -> list[list[str]]:
        """The arguments of each `pip install`."""
        return json.loads(self.state.read_text())["pip"]

    def record(self) -> dict[str, Any]:
        return json.loads(Path(self.place.record).read_text())

    def ready(self, *extras: str, index: str | None = None) -> None:
        start.make_ready(self.place, list(extras) or ["lab"], index)

    def trouble(self, *extras: str, index: str | None = None) -> start.Trouble:
        with pytest.raises(start.Trouble) as caught:
            self.ready(*extras, index=index)
        return caught.value


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    if os.name != "posix":
        pytest.skip("the stand-in is a script with a first line that names its interpreter")
    return World(tmp_path, monkeypatch)


# ------------------------------------------------------------------ an old Python


def test_the_file_parses_on_old_pythons() -> None:
    text = (ROOT / "start.py").read_text(encoding="ascii")
    for node in ast.walk(ast.parse(text, feature_version=(3, 4))):
        new = (
            ast.JoinedStr,
            ast.AnnAssign,
            ast.NamedExpr,
            ast.Nonlocal,
            ast.YieldFrom,
            ast.AsyncFunctionDef,
            ast.Match,
        )
        assert not isinstance(node, new), ast.unparse(node)
        if isinstance(node, ast.FunctionDef):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            assert not any(one.annotation for one in every) and not node.returns, node.name
            assert not node.args.kwonlyargs and not node.args.posonlyargs, node.name
        if isinstance(node, ast.Raise):
            assert node.cause is None, ast.unparse(node)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            assert not any(isinstance(one, ast.Starred) for one in node.elts), ast.unparse(node)
        if isinstance(node, ast.Dict):
            assert None not in node.keys, ast.unparse(node)
        if isinstance(node, ast.Call):
            assert not any(isinstance(one, ast.Starred) for one in node.args[:-1]), ast.unparse(node)


def test_old_pythons_found_here_say_the_sentence() -> None:
    names = ["python2.7", *(f"python3.{minor}" for minor in range(4, 11))]
    found = [path for name in names if (path := shutil.which(name))]
    works = [
        path for path in found if subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0
    ]
    if not works:
        pytest.skip("no Python older than 3.11 on this machine")
    for path in works:
        done = subprocess.run([path, str(ROOT / "start.py"), "lab"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert "needs Python 3.11 or newer" in done.stderr


def test_too_old_says_what_is_needed_and_what_is_there() -> None:
    sentence = (
        "Shape Tracer needs Python 3.11 or newer, and this is Python 3.9.2: install a newer one and start with that."
    )
    assert start.too_old((3, 9, 2, "final", 0)) == sentence
    assert start.too_old((3, 11, 0, "final", 0)) is None
    assert start.too_old((4, 0, 0, "final", 0)) is None


def test_an_old_python_gets_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(start.sys, "version_info", (2, 7, 18))
        code = start.main(["lab"])
    assert (code, capsys.readouterr().err.count("\n")) == (1, 1)


# ------------------------------------------------------------------ what is installed, and when


def test_the_first_start_makes_and_installs(world: World) -> None:
    world.ready()
    project = f"{world.place.root}[lab]"
    constraints = str(Path(world.place.root, "constraints.txt"))
    assert world.pip == [["--editable", project, "--constraint", constraints]]
    assert (world.venvs, world.record()["complete"]) == (1, True)


def test_the_second_start_installs_nothing(world: World) -> None:
    world.ready()
    world.ready()
    assert (world.venvs, len(world.pip)) == (1, 1)


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_dependency_file_installs_again(world: World, name: str) -> None:
    world.ready()
    with Path(world.place.root, name).open("a") as file:
        file.write("# changed\n")
    world.ready()
    world.ready()
    assert (world.venvs, len(world.pip)) == (1, 2)


def test_weights_are_installed_without_what_their_packages_depend_on(world: World) -> None:
    world.ready("lab", "test", "pretrained")
    constraints = str(Path(world.place.root) / "constraints.txt")
    assert world.pip == [
        ["--editable", f"{world.place.root}[lab,test]", "--constraint", constraints],
        ["--no-deps", "--constraint", constraints, "g2p-en>=2.1"],
    ]
    world.ready("lab")
    assert len(world.pip) == 2


def test_extras_add_up(world: World) -> None:
    world.ready("lab")
    world.ready("lab", "test")
    world.ready("lab")
    assert [call[1].partition("[")[2] for call in world.pip] == ["lab]", "lab,test]"]


def test_torch_comes_first_from_its_own_index(world: World) -> None:
    world.ready(index="https://torch.example/cpu")
    assert world.pip[0] == ["torch==2.13.0", "--index-url", "https://torch.example/cpu"]
    assert world.pip[1][0] == "--editable" and "--index-url" not in world.pip[1]
    world.ready()  # the choice is kept
    assert len(world.pip) == 2


def test_another_torch_index_makes_the_environment_anew(world: World) -> None:
    world.ready()
    world.ready(index="https://torch.example/cpu")
    assert (world.venvs, len(world.pip)) == (2, 3)


def test_a_moved_project_gets_a_new_environment(world: World, tmp_path: Path) -> None:
    world.ready()
    shutil.move(world.place.root, tmp_path / "elsewhere")
    world.place = start.Place(str(tmp_path / "elsewhere"))
    world.ready()
    assert (world.venvs, len(world.pip)) == (2, 2)


def test_an_environment_of_another_python_is_made_anew(world: World) -> None:
    world.ready()
    Path(world.place.record).write_text(json.dumps({**world.record(), "python": "3.10"}))
    world.ready()
    assert world.venvs == 2


def test_an_environment_without_its_python_is_made_anew(world: World) -> None:
    world.ready()
    Path(world.place.python).unlink()
    world.ready()
    assert world.venvs == 2


def test_packages_taken_out_are_put_back(world: World) -> None:
    world.ready()
    Path(world.place.venv, "installed").write_text("torch tracer")
    world.ready()
    assert start.works(world.place, ["lab"])


def test_an_environment_made_by_hand_is_built_upon(world: World) -> None:
    subprocess.run([start.base_python(), "-m", "venv", world.place.venv], check=True)
    keep = Path(world.place.venv, "keep")
    keep.touch()
    world.ready()
    assert keep.exists() and world.record()["complete"] and world.venvs == 1


def test_a_link_is_followed(world: World, tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    Path(world.place.venv).symlink_to(tmp_path / "large disk")
    world.ready()
    assert Path(world.place.venv).is_symlink() and (tmp_path / "large disk" / "start.json").exists()


def test_jupyterlab_asks_about_no_news_and_kernels_keep_their_log_to_themselves(world: World) -> None:
    world.ready()
    settings = Path(world.place.venv, "share", "jupyter", "lab", "settings", "overrides.json")
    notification = json.loads(settings.read_text())["@jupyterlab/apputils-extension:notification"]
    assert notification == {"fetchNews": "false", "checkForUpdates": False}
    kernels = Path(world.place.venv, "etc", "ipython", "ipython_kernel_config.json")
    assert json.loads(kernels.read_text()) == {"IPKernelApp": {"log_level": 50}}


# ------------------------------------------------------------------ interrupted, broken off


def test_ctrl_c_ends_pip_and_the_next_start_repairs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.plan(answers=["interrupt"])
    with pytest.raises(KeyboardInterrupt):
        world.ready()
    with pytest.raises(ProcessLookupError):
        os.kill(json.loads(world.state.read_text())["pid"], 0)
    assert "Stopped" in capsys.readouterr().err
    assert not world.record()["complete"]
    world.ready()
    assert (world.venvs, world.record()["complete"]) == (2, True)
    assert "the last installation was not finished" in capsys.readouterr().out


@pytest.mark.parametrize("left", ["{", "[]", '{"complete": false}'])
def test_a_record_that_was_cut_off_counts_as_unfinished(world: World, left: str) -> None:
    world.ready()
    Path(world.place.record).write_text(left)
    world.ready()
    assert world.venvs == 2


def test_only_one_start_installs_at_a_time(world: World) -> None:
    with start.locked(world.place):
        code = f"import start; start.make_ready(start.Place({world.place.root!r}), ['lab'])"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Another start.py is installing here" in done.stderr
    world.ready()


# ------------------------------------------------------------------ one sentence for each failure


REFUSED = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(\"Failed to establish a new "
    "connection: [Errno 111] Connection refused\")': /simple/torch/\n"
    "ERROR: No matching distribution found for torch\n"
)
FAILURES = {
    REFUSED: "The package index could not be reached",
    "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n": "The disk is full",
    "ERROR: Could not install packages due to an OSError: [WinError 112] not enough space\n": "The disk is full",
    "ERROR: Could not install packages due to an OSError: [Errno 122] Disk quota exceeded\n": "Your disk quota",
    "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: 'x'\n": "Permission denied",
    "  error: could not create 'shape_tracer.egg-info': Permission denied\n": "Permission denied",
    "ERROR: ... SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]\n": "The package index's cert",
    "WARNING: The repository located at x is not a trusted or secure host and is being ignored.\n": "is not trusted",
    "ERROR: HTTP error 503 while getting x\n": "The package index could not be reached",
    "ERROR: ResolutionImpossible: for help visit\n": "The versions in constraints.txt contradict",
    "ERROR: No matching distribution found for torch==2.13.0\n": "The package index has no torch==2.13.0 for Python 3.",
    "ERROR: something else\nmore\n": "pip could not install the packages: ERROR: something else",
    "Killed\n\n": "pip could not install the packages: Killed",
}


@pytest.mark.parametrize("said", FAILURES)
def test_what_pip_says_becomes_one_sentence(world: World, said: str) -> None:
    world.plan(answers=[said])
    trouble = world.trouble()
    assert FAILURES[said] in trouble.sentence
    assert "\n" not in trouble.sentence and trouble.log == world.place.log
    assert said in Path(world.place.log).read_text()


def test_the_index_for_torch_is_named_when_it_fails(world: World) -> None:
    world.plan(answers=[REFUSED])
    assert world.trouble(index="https://torch.example/cpu").sentence.startswith("https://torch.example/cpu could not")
    assert len(world.pip) == 1
    world.ready()  # a mistyped address is not remembered
    assert world.record()["torch_index"] == ""


def test_without_network_a_finished_environment_is_left_as_it_was(world: World) -> None:
    world.ready()
    before = world.record()
    Path(world.place.root, "constraints.txt").write_text("torch==2.14.0\n")
    world.plan(answers=[REFUSED])
    assert "could not be reached" in world.trouble().sentence
    assert world.record() == before
    world.ready()
    assert (world.venvs, len(world.pip)) == (1, 3)


def test_a_full_disk_half_way_is_repaired_from_nothing(world: World) -> None:
    world.ready()
    Path(world.place.root, "constraints.txt").write_text("torch==2.14.0\n")
    world.plan(answers=["[Errno 28]"])
    world.trouble()
    world.ready()
    assert world.venvs == 2


def test_no_venv_module(world: World) -> None:
    world.plan(no_venv_module=1)
    assert "apt install python3-venv" in world.trouble().sentence
    assert world.venvs == 0


@pytest.mark.parametrize(("free", "outcome"), [(1.2, "refused"), (4.0, "said"), (50.0, "silent")])
def test_free_space_is_asked_before(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], free: float, outcome: str
) -> None:
    monkeypatch.setattr(start.sys, "platform", "linux")
    monkeypatch.setattr(start.shutil, "disk_usage", lambda _: SimpleNamespace(free=free * 1e9))
    if outcome == "refused":
        assert "needs 2 GB (7 with a CUDA build of torch), and 1.2 GB are free" in world.trouble().sentence
        assert (world.venvs, world.pip) == (0, [])
        return
    world.ready()
    assert ("4.0 GB are free" in capsys.readouterr().out) == (outcome == "said")


def test_a_folder_that_cannot_be_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(start.os, "mkdir", refuse)
    trouble = world.trouble()
    assert trouble.sentence == f"The folder {world.place.venv} can't be written: Permission denied."
    assert trouble.log is None


def test_trouble_is_all_that_people_see(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start, "Place", lambda _: world.place)
    world.plan(answers=[REFUSED])
    assert start.main(["lab", "--no-browser"]) == 1
    sentence = "The package index could not be reached: check the network and its proxy, then start again."
    assert capsys.readouterr().err.splitlines() == [sentence, "Full log: " + world.place.log]


# ------------------------------------------------------------------ the command line


def run_start(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / "start.py"), *arguments], capture_output=True, text=True, check=False
    )


def test_without_a_command_it_explains_itself() -> None:
    done = run_start()
    assert done.returncode == 0
    assert "lab" in done.stdout and "test" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("arguments", [["lab", "--port", "0"], ["lab", "--port", "x"], ["lab", "--prot", "1"], ["lob"]])
def test_a_mistyped_argument_is_refused(arguments: list[str]) -> None:
    done = run_start(*arguments)
    assert done.returncode == 2
    assert arguments[-1] in done.stderr or arguments[-2] in done.stderr
    assert "Traceback" not in done.stderr


def test_the_file_alone_says_what_is_missing(tmp_path: Path) -> None:
    shutil.copy(ROOT / "start.py", tmp_path)
    done = run_start("lab", folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "notebooks is missing" in done.stderr


def test_a_port_in_use_is_said_before_any_work(tmp_path: Path) -> None:
    shutil.copy(ROOT / "start.py", tmp_path)
    (tmp_path / "notebooks").mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run_start("lab", "--port", str(port), folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"Port {port} is in use" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_free_port_passes() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert start.check_port(port) is None
    assert start.check_port(None) is None


class HandedOver(Exception):
    """Stands for the moment in which start.py becomes another program."""


@pytest.fixture
def handed(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Collect the program, arguments, environment and folder that start.py hands over to."""
    seen: list[Any] = []

    def execve(path: str, command: list[str], environment: dict[str, str]) -> None:
        seen.append(SimpleNamespace(path=path, command=command, environment=environment))
        raise HandedOver

    monkeypatch.setattr(start.os, "execve", execve)
    monkeypatch.setattr(start.os, "chdir", lambda path: None)
    monkeypatch.setattr(start.signal, "pthread_sigmask", lambda how, mask: None)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    yield seen


def test_test_passes_its_arguments_on_to_pytest(world: World, handed: list[Any]) -> None:
    with pytest.raises(HandedOver):
        start.command(world.place, ["test", "-x", "tests/test_start.py", "-k", "a or b", "--update"])
    (one,) = handed
    assert one.command == [
        *(world.place.python, "-m", "pytest"),
        *("-x", "tests/test_start.py", "-k", "a or b", "--update"),
    ]
    wanted = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    assert {name: one.environment.get(name) for name in wanted} == wanted
    assert "PYTHONPATH" not in one.environment
    assert world.pip[0][1].endswith("[lab,test]")
    assert world.pip[1][0] == "--no-deps"


def test_lab_serves_the_notebooks_and_asks_nothing(world: World, handed: list[Any]) -> None:
    with pytest.raises(HandedOver):
        start.command(world.place, ["lab", "--no-browser"])
    (one,) = handed
    assert one.path == world.place.python
    assert f"--ServerApp.root_dir={world.place.notebooks}" in one.command
    assert "--no-browser" in one.command and "--ServerApp.answer_yes=True" in one.command
    assert not any("port" in argument for argument in one.command[3:])


def test_a_chosen_port_is_the_only_one_tried(world: World, handed: list[Any]) -> None:
    with pytest.raises(HandedOver):
        start.command(world.place, ["lab", "--port", "50123"])
    (one,) = handed
    assert {"--ServerApp.port=50123", "--ServerApp.port_retries=0"} <= set(one.command)
    assert "--no-browser" not in one.command


def test_jupyterlab_knows_every_option_that_it_gets() -> None:
    options = SimpleNamespace(port=1, no_browser=True)
    names = [text[2:].split("=")[0] for text in start.server_options(start.Place(str(ROOT)), options) if "." in text]
    code = """if True:
        import sys
        from jupyter_client import KernelManager
        from jupyter_server.serverapp import ServerApp
        from jupyterlab import NeverCheckForUpdate
        from jupyterlab.labapp import LabApp
        from traitlets.config import Application
        for name in sys.argv[1:]:
            owner, trait = name.split(".")
            assert globals()[owner].class_traits(config=True)[trait], name
    """
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=False)
    assert len(names) >= 8 and done.returncode == 0, done.stderr


# ------------------------------------------------------------------ how the server ends


@posix_only
@pytest.mark.parametrize(
    ("loading", "running", "code"),
    [
        ("print('now', flush=True); time.sleep(60)", "", -signal.SIGINT),
        ("", "print('now', flush=True); time.sleep(60)", -signal.SIGINT),
        ("", "signal.signal(15, lambda *_: sys.exit(7)); print('now', flush=True); time.sleep(60)", 7),
    ],
    ids=["while loading", "before it serves", "serving"],
)
def test_ctrl_c_at_any_moment_is_silent(tmp_path: Path, loading: str, running: str, code: int) -> None:
    package = tmp_path / "jupyterlab"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "labapp.py").write_text(
        f"import signal, sys, time\n{loading}\nclass LabApp:\n    def launch_instance():\n        {running or 'pass'}\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", start.SERVER]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (code, "")


IN_A_TERMINAL = """
import json, os, pty, re, subprocess, sys, threading, time, urllib.request
import psutil

root, notebooks, port = sys.argv[1], sys.argv[2], sys.argv[3]
server = '''
import sys, start
place = start.Place(sys.argv[1])
place.python, place.notebooks = sys.executable, sys.argv[2]
start.make_ready = lambda *_: None
start.lab(place, start.make_parser().parse_args(["lab", "--no-browser", "--port", sys.argv[3]]))
'''
pid, terminal = pty.fork()
if pid == 0:
    os.chdir(root)
    os.execv(sys.executable, [sys.executable, "-c", server, root, notebooks, port])
shown = b""

def read():
    global shown
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            return
        if not part:
            return
        shown += part

threading.Thread(target=read, daemon=True).start()
until = time.time() + 120
while b"token=" not in shown and time.time() < until:
    time.sleep(0.05)
token = re.search(rb"token=([0-9a-f]+)", shown).group(1).decode()
request = urllib.request.Request(
    "http://localhost:%s/api/kernels" % port, b"{}", {"Authorization": "token " + token}
)
urllib.request.urlopen(request, timeout=60).read()
time.sleep(1)
family = psutil.Process(pid).children(recursive=True)
began = time.time()
os.write(terminal, bytes([3]))
_, status = os.waitpid(pid, 0)
seconds = time.time() - began
_, alive = psutil.wait_procs(family, timeout=2)
print(json.dumps({
    "code": os.waitstatus_to_exitcode(status),
    "seconds": seconds,
    "kernels": len(family),
    "alive": len(alive),
    "shown": shown.decode("utf-8", "replace"),
}))
"""


@posix_only
def test_ctrl_c_in_a_terminal_ends_server_and_kernels(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"), "NO_PROXY": "localhost"}
    done = subprocess.run(
        [sys.executable, "-c", IN_A_TERMINAL, str(ROOT), str(tmp_path), str(port)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["code"], seen["kernels"], seen["alive"]) == (0, 1, 0), seen
    assert "Traceback" not in seen["shown"] and "(y/[n])" not in seen["shown"], seen["shown"]
    assert seen["seconds"] < 10  # seconds; half of one when nothing else runs


def test_run_ends_its_program_when_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.time()
    started: list[Any] = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def wait(self, timeout: float | None = None) -> int:
            if not started:
                started.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(start.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        start.run([sys.executable, "-c", "import time; time.sleep(60)"])
    assert started[0].returncode is not None
    assert time.time() - began < 30


def test_a_program_that_is_not_there_has_an_exit_code() -> None:
    assert start.run([str(ROOT / "no such program")]) == 127
