"""Fill in what only a release knows, and build what is uploaded. Needs git, build and hatchling.

    python -m tools.release OUT --repository https://github.com/OWNER/virnucpro \\
        --archive https://HOST/virnucpro-2.0.0.tar.gz --image pyhdfd78af_0 --maintainer OWNER

``OUT/source`` is a copy of the last commit in which the metadata of the package, the recipe of bioconda
and the module of nf-core name the addresses and maintainers; ``OUT/dist`` has the source distribution,
whose checksum is in the recipe, and the wheel. The same commit and arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from virnucpro.version import __version__

ROOT = Path(__file__).parents[1]


def fill(path: Path, changes: dict[str, str]) -> None:
    """Replace texts of which each is in the file exactly once."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        if text.count(old) != 1:
            sys.exit(f"{path}: {old!r} is in the file {text.count(old)} times, not once")
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def release(out: Path, repository: str, archive: str, image: str, maintainers: list[str]) -> None:
    """Write ``out/source`` and ``out/dist``."""
    out.mkdir(parents=True)
    source, tar = out / "source", out / "source.tar"
    subprocess.run(["git", "archive", "--output", tar.absolute(), "HEAD"], cwd=ROOT, check=True)
    shutil.unpack_archive(tar, source)
    tar.unlink()
    urls = {
        "Homepage": repository,
        "Repository": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
    }
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    fill(source / "pyproject.toml", {"[project.urls]\n": f"[project.urls]\n{lines}"})
    build = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(out / "dist"),
        str(source),
    ]
    subprocess.run(build, check=True)
    (built,) = (out / "dist").glob("*.tar.gz")
    checksum = hashlib.sha256(built.read_bytes()).hexdigest()
    address = archive.replace(__version__, "{{ version }}")
    workflows, documentation = source / "docs/workflows", f"{repository}/tree/HEAD/docs"
    fill(
        workflows / "bioconda/meta.yaml",
        {
            "# conda build docs/workflows/bioconda\n": "",
            "  path: ../../..\n": f"  url: {address}\n  sha256: {checksum}\n",
            "about:\n": f"about:\n  home: {repository}\n  dev_url: {repository}\n  doc_url: {documentation}\n",
            "recipe-maintainers: []": f"recipe-maintainers: [{', '.join(maintainers)}]",
        },
    )
    tagged = f"virnucpro:{__version__}--{image}"
    fill(
        workflows / "nextflow/main.nf",
        {
            f'container "virnucpro:{__version__}"': (
                "container \"${ workflow.containerEngine in ['singularity', 'apptainer'] && "
                "!task.ext.singularity_pull_docker_container ?\n"
                f"        'https://depot.galaxyproject.org/singularity/{tagged}':\n"
                f"        'quay.io/biocontainers/{tagged}' }}\""
            )
        },
    )
    handles = "[" + ", ".join(f'"@{name}"' for name in maintainers) + "]"
    fill(
        workflows / "nextflow/meta.yml",
        {
            "      doi:": f"      homepage: {repository}\n      documentation: {documentation}\n"
            f"      tool_dev_url: {repository}\n      doi:",
            "authors: []": f"authors: {handles}",
            "maintainers: []": f"maintainers: {handles}",
        },
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill in what only a release knows, and build.")
    parser.add_argument("out", type=Path, help="a folder that does not exist yet")
    parser.add_argument("--repository", required=True, help="address of the project, as on GitHub")
    parser.add_argument("--archive", required=True, help="address of the source distribution")
    parser.add_argument(
        "--image", required=True, help="build in the tag of the BioContainers image"
    )
    parser.add_argument("--maintainer", action="append", required=True, help="name on GitHub")
    given = parser.parse_args()
    release(given.out, given.repository, given.archive, given.image, given.maintainer)
