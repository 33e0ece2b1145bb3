"""The rules of the house: light and heavy apart, arrows down, no circles, every file in its tuple, clean words."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[1]
OURS = ("core", "data", "webui")
HEAVY = ("torch", "transformers", "trl", "peft", "datasets", "accelerate", "gradio")

BROWSER = ("gradio", "fastapi", "starlette", "uvicorn")

# Who may import whom, at module level and inside functions alike; a room may always import itself.
# core.training is started by name; only it and the heavy halves of stages, methods and engines touch it.
SPECS = {
    *(
        "core.job",
        "core.stages",
        "core.methods",
        "core.engines",
        "core.launchers",
        "core.rewards",
        "core.export",
    )
}
MAY_IMPORT: dict[str, set[str]] = {
    "data": set(),
    **{room: {"data", *SPECS} for room in SPECS},
    "core.rewards": {"data", *SPECS, "core.sandbox"},
    "core.sandbox": {"data"},
    "core.runs": {"data", *SPECS},
    "core.nodes": {"data", *SPECS, "core.runs"},
    "core.chat": {"data", *SPECS, "core.runs"},
    "core.training": {"data", *SPECS, "core.runs", "core.chat"},
    "core.cli": {"data", *SPECS, "core.runs", "core.nodes", "core.chat"},
    "webui": {"data", *SPECS, "core.runs", "core.chat"},
}
HEAVY_HALVES = ("core.stages", "core.methods", "core.engines", "core.export")
LIGHT = tuple(room for room in MAY_IMPORT if room not in ("core.training", "webui"))


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    found = {}
    for top in OURS:
        for path in (ROOT / top).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str:
    """The room a module is in: `core.job` for core.job.spec, `data` for data.formats.csv."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "core" and len(parts) > 1 else parts[0]


def _imports(tree: ast.AST, *, deep: bool) -> Iterator[str]:
    """Names imported in a tree; without `deep` only those that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that the arrows can be read"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif deep or not (_is_function(node) or _is_type_checking(node)):
            yield from _imports(node, deep=deep)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@cache
def imports_of(module: str, *, deep: bool) -> frozenset[str]:
    """Modules of ours that a module imports."""
    tree = ast.parse(modules()[module].read_text("utf-8"))
    return frozenset(name for name in _imports(tree, deep=deep) if name in modules() and name != module)


def test_there_is_a_house_to_check():
    assert {"core.job.spec", "core.cli.show", "data.errors", "core.stages.sft"} <= set(modules())
    assert {room_of(name) for name in modules()} - {"core"} <= set(MAY_IMPORT)


def test_light_rooms_stay_light_in_a_fresh_process():
    light = sorted(name for name in modules() if room_of(name) in LIGHT and not name.endswith("__main__"))
    program = (
        "import importlib, sys\n"
        f"for name in {light!r}:\n    importlib.import_module(name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (answer.stdout.strip(), answer.stderr) == ("[]", "")


def test_the_core_knows_no_browser():
    wrong = []
    for name, path in modules().items():
        tree = ast.parse(path.read_text("utf-8"))
        foreign = {one.partition(".")[0] for one in _imports(tree, deep=True)} & set(BROWSER)
        if foreign and room_of(name) != "webui":
            wrong.append(f"{name} -> {sorted(foreign)}")
    assert wrong == []


def test_the_board_brings_gradio_and_none_of_the_training_libraries():
    names = [name for name in modules() if room_of(name) == "webui"]
    program = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n    importlib.import_module(name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.stdout.strip() == "['gradio']", answer.stderr


def test_arrows_point_down():
    wrong = []
    for module in modules():
        room = room_of(module)
        allowed = MAY_IMPORT.get(room, set()) | {room, "core"}
        for name in sorted(imports_of(module, deep=True)):
            if module in ("core.cli.board", "core.cli.serve") and room_of(name) == "webui":
                continue  # the two words that listen on a port
            heavy_half = room in HEAVY_HALVES and room_of(name) == "core.training"
            if room_of(name) not in allowed and not heavy_half:
                wrong.append(f"{module} -> {name}")
    assert wrong == []


def test_training_is_imported_at_module_level_by_nobody_but_itself():
    wrong = [
        f"{module} -> {name}"
        for module in modules()
        if room_of(module) != "core.training"
        for name in imports_of(module, deep=False)
        if room_of(name) == "core.training"
    ]
    assert wrong == []


def test_no_module_imports_itself_around_a_circle():
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module not in done:
            for name in sorted(_direct(module)):
                walk(name, (*trail, module))
            done.add(module)

    for module in sorted(modules()):
        walk(module, ())


def _direct(module: str) -> set[str]:
    """Module-level imports; `from core.stages import sft` is an import of core.stages.sft by its own package."""
    found = set(imports_of(module, deep=False))
    # A package that names its own files imports them; a file that names its package's attributes does not recurse.
    return {
        name
        for name in found
        if not (module.startswith(name + ".") and modules()[name].name == "__init__.py")
    }


# Where people add files: the package, its tuple, and what such a file has and a helper beside it has not.
REGISTERS = {
    "core.stages": ("STAGES", "Spec"),
    "core.methods": ("METHODS", "Spec"),
    "core.rewards": ("REWARDS", "Spec"),
    "core.engines": ("ENGINES", "Spec"),
    "core.export": ("TARGETS", "Spec"),
    "core.launchers": ("LAUNCHERS", "Spec"),
    "webui.pages": ("PAGES", "PATH"),
    "data.formats": ("FORMATS", "NAME"),
}


def defines(module: str, name: str) -> bool:
    """Whether a module defines a class, function or value of that name at its top level."""
    for node in ast.parse(modules()[module].read_text("utf-8")).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return True
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return True
    return False


@pytest.mark.parametrize("package", [name for name in REGISTERS if name in modules()])
def test_every_file_of_a_register_is_in_its_tuple(package):
    register, mark = REGISTERS[package]
    files = {name for name in modules() if name.startswith(package + ".") and defines(name, mark)}
    listed = getattr(importlib.import_module(package), register)
    assert files == {module.__name__ for module in listed} and files


def test_every_file_with_commands_is_in_the_command_line():
    from core.cli import FAMILIES, MODULES, build_app

    files = {name for name in modules() if room_of(name) == "core.cli" and defines(name, "register")}
    assert files == {module.__name__ for module in MODULES}
    for words in FAMILIES.values():
        assert set(get_command(build_app(words[0])).commands) == set(words)


# With a letter in brackets here and there, or this file would find itself.
FORBIDDEN = {
    "a package host": r"p[y]pi\.|pytho[n]hosted|anacond[a]\.(org|com)|download\.pytorc[h]",
    "a path of one machine": rf"(?<![\w.$}}])(/wor[k]|/roo[t]|/op[t]/wheels|{re.escape(str(ROOT))})(/|\b)",
    "a shell": r"shell\s*=\s*Tru[e]",
    "a model's own code": r"trust_remote_code\s*=\s*Tru[e]",
}


def committed_files() -> list[Path]:
    """What git tracks and what it would track; in a copy without git, every file outside dot folders."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        return [path for name in answer.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not path.relative_to(ROOT).parts[0].startswith(".")
    ]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_committed_file_names(what):
    pattern = re.compile(FORBIDDEN[what])
    files = committed_files()
    assert len(files) > 30
    found = []
    for path in files:
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a package host", "the index at PYPI.org"),
        ("a path of one machine", "see /WORK/dev/x"),
        ("a path of one machine", f"{ROOT}/job.yaml"),
        ("a shell", "run(x, SHELL=TRUE)"),
        ("a model's own code", "trust_remote_code = TRUE"),
    ],
)
def test_the_forbidden_words_would_be_found(what, line):
    assert re.search(FORBIDDEN[what], line, re.IGNORECASE)
