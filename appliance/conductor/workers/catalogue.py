"""The model catalogue: which model files there are, what they are, and where they can be had.

A file's identity is its sha256: whatever source it came from, only these bytes are that model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from conductor.errors import StartError
from conductor.strictyaml import source as yamlsource
from conductor.strictyaml.faults import Faults
from conductor.strictyaml.values import Section

ENCODER_ID = "minilm-l6"
"""The sentence encoder with which the planner's conductors are trained."""

NAMES_ID = "rampart-names"
"""The tagger that finds names of persons and addresses."""

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PROJECT = re.compile(r"[a-z0-9]([a-z0-9-]{0,98}[a-z0-9])?")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+){0,3}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(\.gguf|\.onnx|\.json)")
_MEMBER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,8}")
_MAX_BYTES = 2**40


@dataclass(frozen=True)
class Wheel:
    """A Python package file that carries a model, or a part of one, as its `member`."""

    name: str
    version: str
    sha256: str
    member: str


@dataclass(frozen=True)
class Origin:
    """Where the model's makers publish the file, for people who fetch it themselves."""

    repo: str
    file: str


@dataclass(frozen=True)
class CatalogueModel:
    """One model file. `wheels`, joined in order, give its bytes."""

    id: str
    title: str
    file: str
    """A readable name for the file; its sha256 is what it is stored and found by."""
    sha256: str
    size_bytes: int
    licence: str
    context_tokens: int
    """The longest prompt and answer that it was trained for."""
    wheels: tuple[Wheel, ...]
    origin: Origin
    needs: tuple[str, ...] = ()
    """Ids of the files without which this one is of no use: a tokenizer, say."""

    @property
    def stored_as(self) -> str:
        """The file's name in the models directory: its sha256, and what it is."""
        return self.sha256 + Path(self.file).suffix

    @property
    def answers(self) -> bool:
        """Whether it is a language model, which a worker can run."""
        return self.file.endswith(".gguf")


Catalogue = Mapping[str, CatalogueModel]


def load_catalogue(path: Path | None = None) -> dict[str, CatalogueModel]:
    """Read a catalogue, by default the one that is shipped. Raises `ConfigError`, `StartError`."""
    faults = Faults()
    root = yamlsource.read(path or shipped_catalogue(), faults).root
    models: dict[str, CatalogueModel] = {}
    for item in root.items("models"):
        section = item.mapping()
        model = _model(section)
        if model.id in models:
            section.fault("duplicate-id", "an earlier model has this id", "id")
        models[model.id] = model
        _check_needs(section, model, models)
    root.done()
    faults.raise_any()
    return models


def shipped_catalogue() -> Path:
    """`configs/models.yaml`: in the installed package, or in the repository around it."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "configs", package.parents[1] / "configs"):
        if (folder / "models.yaml").is_file():
            return folder / "models.yaml"
    raise StartError("the model catalogue is missing from this installation: install it again")


def find_model(catalogue: Catalogue, model_id: str) -> CatalogueModel:
    """Raises `StartError` that lists what there is."""
    if model_id in catalogue:
        return catalogue[model_id]
    raise StartError(f"no such model in the catalogue; known: {', '.join(catalogue)}")


def with_needed(catalogue: Catalogue, model_id: str) -> tuple[CatalogueModel, ...]:
    """The model and the files that it needs. Raises `StartError` as `find_model`."""
    model = find_model(catalogue, model_id)
    return (model, *(catalogue[name] for name in model.needs))


def _model(section: Section) -> CatalogueModel:
    model = CatalogueModel(
        id=section.text("id", pattern=_ID, want="lower case letters, digits and '._-'"),
        title=section.text("title"),
        file=section.text(
            "file", pattern=_FILE, want="a plain file name that ends in .gguf, .onnx or .json"
        ),
        sha256=_sha256(section),
        size_bytes=section.integer("size_bytes", low=1, high=_MAX_BYTES),
        licence=section.text("licence"),
        context_tokens=section.integer("context_tokens", low=1),
        wheels=tuple(_wheel(item.mapping()) for item in section.items("wheels")),
        origin=_origin(section.mapping("origin")),
        needs=section.texts("needs", (), pattern=_ID, want="ids of the catalogue"),
    )
    section.done()
    return model


def _check_needs(section: Section, model: CatalogueModel, earlier: Catalogue) -> None:
    """What is needed stands further up and needs nothing itself, so that there are no circles."""
    for name in model.needs:
        if name not in earlier or earlier[name].needs:
            section.fault("unknown-id", "needs must name earlier models that need none", "needs")


def _wheel(section: Section) -> Wheel:
    wheel = Wheel(
        name=section.text("name", pattern=_PROJECT, want="a normalised project name"),
        version=section.text("version", pattern=_VERSION, want="an exact version"),
        sha256=_sha256(section),
        member=section.text("member", pattern=_MEMBER, want="a path inside the wheel"),
    )
    if ".." in PurePosixPath(wheel.member).parts:
        section.fault("bad-value", "member must be a path inside the wheel", "member")
    section.done()
    return wheel


def _origin(section: Section) -> Origin:
    origin = Origin(section.text("repo"), section.text("file"))
    section.done()
    return origin


def _sha256(section: Section) -> str:
    return section.text("sha256", pattern=_SHA256, want="64 lower case hexadecimal digits")
