"""Builds a release file for boxes without a network: `make bundle`.

    bundle.py OUT [--key FILE] [--python python3.11] [--model ID]... [--level 6]

Holds the laid-out version (`tree.sh`), model files by their names in the catalogue, `install.sh`, a
bill of materials, everybody's licences, and a signed manifest with every hash. Without a key file
one is made, and said aloud: whoever holds it decides what boxes will install.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(HERE))

import releasefile  # noqa: E402
import sbom  # noqa: E402

from conductor.errors import ConductorError  # noqa: E402
from conductor.process import keyfiles  # noqa: E402
from conductor.workers.catalogue import CatalogueModel, find_model, load_catalogue  # noqa: E402
from conductor.workers.fetch import locate  # noqa: E402

MODELS = REPOSITORY / "var/models"
PURPOSE = "release"


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        key = _key(options.key)
        models = [find_model(load_catalogue(), name) for name in options.model]
        files = tuple(_model_file(model) for model in models)
    except ConductorError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run([HERE / "tree.sh", tree, options.python], check=True)  # noqa: S603
        home = next((tree / "opt/conductor/versions").iterdir())
        site = next(home.glob("lib/python*/site-packages"))
        contents = releasefile.Contents(
            version=home.name,
            python=site.parent.name.removeprefix("python"),
            state_format=int((home / "share/state-format").read_text()),
            tree=tree,
            texts=_texts(home.name, site, models),
            models=files,
        )
        os.environ.setdefault("SOURCE_DATE_EPOCH", _commit_time())
        out = options.out / f"conductor-{contents.version}-py{contents.python}-amd64.release"
        releasefile.write(out, contents, key, options.level)
    print(f"{out} ({out.stat().st_size >> 20} MiB)")
    print(f"signed by the holder of {options.key}; boxes need {options.key.with_suffix('.pub')}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build a release file.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--key", type=Path, default=REPOSITORY / "var/release/release.key")
    parser.add_argument("--python", default="python3.11")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--level", type=int, default=6)
    return parser.parse_args()


def _key(path: Path) -> releasefile.Ed25519PrivateKey:
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        keyfiles.generate(path, path.with_suffix(".pub"), PURPOSE)
        print(
            f"made a release key in {path}: keep it off the boxes, and off this machine if you can"
        )
    return keyfiles.load_private(path, PURPOSE)


def _model_file(model: CatalogueModel) -> Path:
    path = locate(MODELS, model, verify=True)
    if path is None:
        sys.exit(f"no file of {model.id}: run 'conductor models pull {model.id}'")
    return path


def _texts(version: str, site: Path, models: list[CatalogueModel]) -> dict[str, bytes]:
    listed = [(model.id, model.sha256, model.licence) for model in models]
    return {
        "install.sh": (HERE / "install.sh").read_bytes(),
        "sbom.cdx.json": sbom.bill(version, site, listed),
        "licences.txt": sbom.licences(site),
    }


def _commit_time() -> str:
    asked = ["git", "log", "-1", "--format=%ct"]
    told = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, text=True)  # noqa: S603
    return told.stdout.strip() or "0"


if __name__ == "__main__":
    main()
