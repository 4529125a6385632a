"""What `ray job submit --working-dir .` would upload, by Ray's own packing code."""

import logging
import shutil
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

UPLOADED = ["pipeline/build.py", "examples/demo.yaml", "examples/sample/mail/news.parquet", "pyproject.toml", "my.yaml"]
LEFT_OUT = [
    ".git/objects/pack/large.pack",
    ".venv/lib/python3.11/site-packages/torch/large.so",
    "demo/data/shards/train/v1-000000.tar",
    "runs/first/step-100/model.distcp",
    "tests/k8s/test_k8s_working_dir.py",
    "pipeline/__pycache__/build.cpython-311.pyc",
    ".mypy_cache/3.11/cache.json",
]


# Ray 2.60 leaves out the first list by itself; releases before it leave out nothing (ray-project/ray#45602).
@pytest.mark.parametrize("built_in", [[".git", ".venv", "venv", "__pycache__"], []], ids=["Ray 2.60", "older Ray"])
def test_ray_uploads_the_code_and_neither_git_nor_the_environment(tmp_path: Path, built_in: list[str]) -> None:
    from ray._private.runtime_env.packaging import _zip_files

    project = tmp_path / "project"
    for name in UPLOADED + LEFT_OUT:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    for name in (".gitignore", ".rayignore"):
        shutil.copy(REPOSITORY / name, project / name)
    package = tmp_path / "package.zip"
    _zip_files(str(project), built_in, str(package), include_gitignore=True, logger=logging.getLogger(__name__))
    assert sorted(zipfile.ZipFile(package).namelist()) == sorted([*UPLOADED, ".gitignore", ".rayignore"])
