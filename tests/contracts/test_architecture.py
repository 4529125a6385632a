"""The house's rules: who imports whom, and where Ray and torch may be named."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("manifests", "pipeline", "loader", "trainer")
MAY_IMPORT = {
    "manifests": set(),
    "pipeline": {"manifests"},
    "loader": {"manifests"},
    "trainer": {"manifests", "loader"},
}


def modules_imported(path: Path) -> Iterator[str]:
    """Every module an import statement names, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_importing(repository: Path, package: str, library: str) -> list[str]:
    return sorted(
        str(path.relative_to(repository))
        for path in (repository / package).rglob("*.py")
        if any(name.split(".")[0] == library for name in modules_imported(path))
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_packages_below_it(repository: Path, package: str) -> None:
    imported = {
        name.split(".")[0]
        for path in (repository / package).rglob("*.py")
        for name in modules_imported(path)
        if name.split(".")[0] in PACKAGES
    }
    assert imported - {package} <= MAY_IMPORT[package]


def test_ray_is_imported_in_one_module_of_the_pipeline(repository: Path) -> None:
    assert files_importing(repository, "pipeline", "ray") == ["pipeline/runtime.py"]
    assert [package for package in PACKAGES if files_importing(repository, package, "ray")] == ["pipeline"]


def test_torch_is_imported_in_the_loader_only_where_batches_become_tensors_and_go_to_a_device(repository: Path) -> None:
    assert files_importing(repository, "loader", "torch") == ["loader/batches.py", "loader/staging.py"]
    assert files_importing(repository, "pipeline", "torch") == []
    assert files_importing(repository, "manifests", "torch") == []


def test_the_project_never_names_the_workplace_it_was_made_in(repository: Path) -> None:
    shared = "shared/"  # joined below so that this file does not find itself
    needles = ("/work/", "." * 2 + "/" + shared + "design")
    offenders = [
        str(path.relative_to(repository))
        for package in (*PACKAGES, "examples", "k8s")
        for path in (repository / package).rglob("*")
        if path.suffix in {".py", ".yaml", ".md"}
        and any(needle in path.read_text(encoding="utf-8") for needle in needles)
    ]
    assert offenders == []
