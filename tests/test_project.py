"""The project as a whole: its files, its dependencies, its imports, and the checkers that read all of it."""

import ast
import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tracer"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a Python module in the project's folder and return what it wrote."""
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)


def tracked() -> list[str]:
    """Return the files under version control, as paths from the project's folder."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name]


def notebooks() -> list[str]:
    """Return the notebooks' paths from the project's folder."""
    return [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]


# ------------------------------------------------------------------ files


TOP = {
    *("notebooks", "tracer", "tests", "environment.yml", "README.md", "start.py"),
    *("pyproject.toml", "constraints.txt", ".ci", ".gitignore", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"),
}


def test_the_top_level_holds_only_what_is_permitted() -> None:
    assert {name.split("/")[0] for name in tracked()} - TOP == set()


def test_a_notebooks_folder_has_notebooks() -> None:
    assert notebooks() or not (ROOT / "notebooks").exists()


def test_nothing_hides_environment_yml_from_binder() -> None:
    assert not {name.split("/")[0] for name in tracked()} & {"binder", ".binder"}


def test_every_file_beside_the_modules_is_shipped() -> None:
    patterns = pyproject()["tool"]["setuptools"]["package-data"]["*"]
    data = [name for name in tracked() if name.startswith("tracer/") and not name.endswith(".py")]
    assert [name for name in data if not any(fnmatch(Path(name).name, one) for one in patterns)] == []


# ------------------------------------------------------------------ dependencies


CONDA_NAMES = {"pytorch": "torch"}
COLAB = {"anywidget": "0.9.21", "ipywidgets": "7.7.1", "torch": "2.8.0", "einops": "0.8.1", "matplotlib": "3.10.0"}


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(*extras: str) -> dict[str, Requirement]:
    """Return the core requirements and those of the extras, by canonical name."""
    project = pyproject()["project"]
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    return {canonicalize_name(one.name): one for one in map(Requirement, texts)}


def test_environment_yml_asks_for_what_pyproject_asks_for() -> None:
    listed = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert listed["channels"] == ["conda-forge"]
    conda = {one.name: one for one in map(Requirement, (x for x in listed["dependencies"] if isinstance(x, str)))}
    python, _pip = conda.pop("python"), conda.pop("pip")
    assert str(python.specifier) == pyproject()["project"]["requires-python"]
    named = {CONDA_NAMES.get(name, name): str(one.specifier) for name, one in conda.items()}
    assert named == {name: str(one.specifier) for name, one in requirements("lab").items()}
    assert [x for x in listed["dependencies"] if not isinstance(x, str)] == [{"pip": ["-e .[lab]"]}]


def test_each_direct_dependency_is_pinned_once_within_its_range() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    wanted = requirements(*pyproject()["project"]["optional-dependencies"])
    assert sorted(canonicalize_name(name) for name, _ in pins) == sorted(wanted)
    assert [name for name, version in pins if not wanted[canonicalize_name(name)].specifier.contains(version)] == []


@pytest.mark.parametrize("name", COLAB)
def test_ranges_admit_what_colab_holds(name: str) -> None:
    assert requirements()[name].specifier.contains(COLAB[name])


def test_the_core_stays_small() -> None:
    assert set(requirements()) == {"anywidget", "einops", "ipywidgets", "matplotlib", "safetensors", "torch", "tqdm"}


# ------------------------------------------------------------------ imports inside the package


LAYERS = (
    {"errors", "speech"},
    {"naming"},
    {"records"},
    {"calls", "costs", "declared", "listings", "looks"},
    {"rules"},
    {"namer"},
    {"matching"},
    {"render"},
    {"diff"},
    {"advice"},
    {"result"},
    {"ledger", "opened", "paths", "patterns", "sites"},
    {"stumbles"},
    {"hooks", "recorder"},
    {"engine"},
    {"checks", "devices", "drawing", "explorer", "magic", "maps", "models", "player"},
    {"classroom"},
    {"lessons"},
    {"grading"},
    {"handout", "samples"},
    {"cli"},
    {"__init__", "__main__"},
)
"""Each part may import from its own layer and from those above it in this list, never from those below."""

RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
MODELS_MAY_IMPORT = {"einops", "safetensors", "torch", "tqdm"}


def sources() -> dict[str, str]:
    """Return the text of every module by dotted name; a package's `__init__` bears the package's name."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return found


def part_of(module: str) -> str:
    """Return the part that a module belongs to: `tracer.rules.views` -> `rules`, `tracer` -> `__init__`."""
    return [*module.split("."), "__init__"][1]


def is_package(module: str, modules: Mapping[str, str]) -> bool:
    return module == PACKAGE or any(other.startswith(module + ".") for other in modules)


def imported(node: ast.Import | ast.ImportFrom, module: str, modules: Mapping[str, str]) -> set[str]:
    """Return the dotted names that one statement of `module` imports; our own submodules by their full name."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    base = node.module or ""
    if node.level:
        parents = module.split(".")[: None if is_package(module, modules) else -1]
        above = parents[: len(parents) - node.level + 1]
        base = ".".join([*above, *([node.module] if node.module else [])])
    inner = {f"{base}.{alias.name}" for alias in node.names}
    return {name if name in modules else base for name in inner}


def statements(text: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield each import statement, and whether it stands inside a function."""

    def walk(node: ast.AST, inside: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield child, inside
            yield from walk(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    yield from walk(ast.parse(text), False)


def edges(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Return, for each module, the modules of ours that it imports."""
    return {
        module: {
            name
            for node, _ in statements(text)
            for name in imported(node, module, modules)
            if name in modules and name != module
        }
        for module, text in modules.items()
    }


def wrong_directions(modules: Mapping[str, str]) -> list[str]:
    """Return the imports that go against the layers, and the modules that have no layer."""
    wrong = [f"{module}: no layer in LAYERS" for module in modules if part_of(module) not in RANK]
    for module, names in edges(modules).items():
        for name in names:
            own, other = part_of(module), part_of(name)
            if RANK.get(other, 0) > RANK.get(own, 0) or (own == "models" != other):
                wrong.append(f"{module} imports {name}")
    return sorted(wrong)


def circle(modules: Mapping[str, str]) -> list[str]:
    """Return one circle of imports as the modules on it, or an empty list."""
    graph, done = edges(modules), set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for name in sorted(graph[module]):
            if found := visit(name, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := visit(module, []))), [])


def dodges(modules: Mapping[str, str]) -> list[str]:
    """Return imports that wait inside functions or are made by name; only the root may: it loads widgets when asked."""
    found = []
    for module, text in modules.items():
        if module == PACKAGE:
            continue
        found += [f"{module}:{node.lineno} import inside a function" for node, inside in statements(text) if inside]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
                found.append(f"{module}:{node.lineno} import by name")
    return found


def root_imports(modules: Mapping[str, str]) -> list[str]:
    """Return the places that import the package's root."""
    return [
        f"{module}:{node.lineno}"
        for module, text in modules.items()
        for node, _ in statements(text)
        if module != PACKAGE and PACKAGE in imported(node, module, modules)
    ]


def outsiders(text: str) -> set[str]:
    """Return the third-party packages that a module imports."""
    names = {
        name.split(".")[0]
        for node, _ in statements(text)
        if not (isinstance(node, ast.ImportFrom) and node.level)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    return names - sys.stdlib_module_names - {PACKAGE}


def test_imports_run_one_way() -> None:
    assert wrong_directions(sources()) == []


def test_imports_have_no_circle() -> None:
    assert circle(sources()) == []


def test_no_import_waits_inside_a_function() -> None:
    assert dodges(sources()) == []


def test_nothing_inside_imports_the_root() -> None:
    assert root_imports(sources()) == []


def test_models_import_torch_and_little_else() -> None:
    used = {name for module, text in sources().items() if part_of(module) == "models" for name in outsiders(text)}
    assert used <= MODELS_MAY_IMPORT


def test_no_submodule_bears_the_name_of_a_public_function() -> None:
    assert not {part_of(module) for module in sources()} & {"trace", "record", "explore", "check_axes", "device"}


BASE = {"tracer": "", "tracer.errors": "", "tracer.records": "", "tracer.engine": "", "tracer.models": ""}


@pytest.mark.parametrize(
    ("check", "module", "text"),
    [
        (wrong_directions, "tracer.records", "from tracer.engine import trace"),
        (wrong_directions, "tracer.records", "from . import engine"),
        (wrong_directions, "tracer.records", "import tracer.engine"),
        (wrong_directions, "tracer.records", "if TYPE_CHECKING:\n    from .engine import trace"),
        (wrong_directions, "tracer.models", "from .errors import TracerError"),
        (wrong_directions, "tracer.models.gpt", "from ..errors import TracerError"),
        (wrong_directions, "tracer.engine", "from .models import GPT"),
        (wrong_directions, "tracer.news", ""),
        (circle, "tracer.errors", "from .records import Op"),
        (dodges, "tracer.records", "def f():\n    from .errors import TracerError"),
        (dodges, "tracer.records", "class A:\n    def f(self):\n        import json"),
        (dodges, "tracer.records", "import importlib\nx = importlib.import_module('json')"),
        (root_imports, "tracer.records", "import tracer"),
        (root_imports, "tracer.records", "from tracer import trace"),
        (root_imports, "tracer.records", "from . import trace"),
        (root_imports, "tracer.models.gpt", "from .. import trace"),
    ],
)
def test_the_import_checks_find_what_they_are_for(
    check: Callable[[Mapping[str, str]], list[str]], module: str, text: str
) -> None:
    modules = {**BASE, "tracer.records": "from .errors import TracerError"}
    assert check(modules) == []
    assert check({**modules, module: text})


def test_importing_the_package_loads_no_widgets_and_no_figures() -> None:
    code = "import sys, tracer; print(sorted({'matplotlib', 'ipywidgets', 'anywidget'} & set(sys.modules)))"
    done = run("-c", code)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


# ------------------------------------------------------------------ modules


MODULES = sorted(sources())


def order(name: str) -> tuple[int, str]:
    """Sort key of ruff's RUF022: constants, classes, then the rest."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


@pytest.mark.parametrize("module", MODULES)
def test_all_is_sorted_and_true(module: str) -> None:
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", [])
    assert list(names) == sorted(set(names), key=order)
    assert [name for name in names if not hasattr(loaded, name)] == []


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_are_true(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS).failed == 0


def test_every_module_is_found_by_the_package() -> None:
    package = importlib.import_module(PACKAGE)
    walked = {info.name for info in pkgutil.walk_packages(package.__path__, PACKAGE + ".")}
    assert walked == set(MODULES) - {PACKAGE}


# ------------------------------------------------------------------ nothing is fetched at run time


FETCH = re.compile(
    r"""<(?:script|link|img|iframe|source|video|audio)\b[^>]*?(?:src|href)\s*=\s*["']?(?:https?:)?//"""
    r"""|\burl\(\s*["']?(?:https?:)?//"""
    r"""|@import\b"""
    r"""|\bfrom\s*["'](?:https?:)?//"""
    r"""|\b(?:import|fetch|importScripts|Worker|require)\(\s*[`"'](?:https?:)?//""",
    re.IGNORECASE,
)


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js">',
        "<script async src=//cdn.example/x.js>",
        '<link rel="stylesheet" href="http://fonts.example/css">',
        "<img alt='' src='https://example.org/a.png'>",
        "src: url(https://example.org/f.woff2)",
        "@import 'theme.css'",
        'import * as d3 from "https://esm.example/d3"',
        "await import('https://esm.example/d3')",
        "fetch(`https://example.org/data`)",
    ],
)
def test_a_fetch_is_recognised(text: str) -> None:
    assert FETCH.search(text)


@pytest.mark.parametrize(
    "text",
    [
        '<a href="https://example.org/paper">paper</a>',
        'xmlns="http://www.w3.org/2000/svg"',
        '<script src="widget.js">',
        "url(#arrow)",
        "from torch import nn  # https://example.org",
    ],
)
def test_a_link_is_not_a_fetch(text: str) -> None:
    assert not FETCH.search(text)


def test_no_file_fetches_anything_at_run_time() -> None:
    folders = [ROOT / PACKAGE, ROOT / "notebooks"]
    suffixes = {".py", ".js", ".css", ".html", ".json", ".ipynb", ".svg"}
    paths = [path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes]
    found = {path.name: match.group() for path in paths if (match := FETCH.search(path.read_text(encoding="utf-8")))}
    assert found == {}


# ------------------------------------------------------------------ checkers


def clean(*command: str) -> None:
    """Assert that a checker, run as a module, ends with 0; show what it wrote where it doesn't."""
    done = run("-m", *command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_check() -> None:
    clean("ruff", "check", ".")


def test_ruff_format() -> None:
    clean("ruff", "format", "--check", ".")


def test_mypy_strict() -> None:
    clean("mypy")


def test_notebooks_are_stripped() -> None:
    if not notebooks():
        pytest.skip("no notebooks")
    clean("nbstripout", "--verify", *notebooks())


@pytest.mark.skipif(os.name == "nt", reason="bash")
def test_the_ci_script_is_executable_and_parses() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
