"""Puts a report into a folder. The JSON is written last: where it is, the report is complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from conductor_build.report.document import document
from conductor_build.report.frontier import frontier_png
from conductor_build.report.lmdocument import lm_document
from conductor_build.report.lmmarkdown import lm_markdown
from conductor_build.report.markdown import markdown

if TYPE_CHECKING:
    from conductor_build.evaluate.judge import Evaluation
    from conductor_build.evaluate.lmjudge import LmEvaluation

JSON, MARKDOWN, PICTURE = "report.json", "report.md", "frontier.png"


def write_report(
    folder: Path, evaluation: Evaluation, provenance: Mapping[str, object]
) -> dict[str, Path]:
    """Write all three files and return where they are. An older report is replaced, file by file;
    its JSON goes first, so that a report is never mixed with the pictures of another.

    `provenance`: facts fit for JSON that make the numbers come out again, such as hashes of the
    data (`document.fingerprint`) and the bundle's id. Raises `OSError`.
    """
    contents = {
        PICTURE: frontier_png(evaluation),
        MARKDOWN: markdown(evaluation, provenance).encode(),
        JSON: orjson.dumps(document(evaluation, provenance), option=orjson.OPT_INDENT_2) + b"\n",
    }
    return put(folder, contents)


def write_lm_report(
    folder: Path, evaluation: LmEvaluation, provenance: Mapping[str, object]
) -> dict[str, Path]:
    """The same of a language model. `provenance` says whether the pool was `simulated`."""
    contents = {
        PICTURE: frontier_png(evaluation.at_lambdas),
        MARKDOWN: lm_markdown(evaluation, provenance).encode(),
        JSON: orjson.dumps(lm_document(evaluation, provenance), option=orjson.OPT_INDENT_2) + b"\n",
    }
    return put(folder, contents)


def put(folder: Path, contents: Mapping[str, bytes]) -> dict[str, Path]:
    """Write files of a report, in order; its JSON should be the last. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JSON).unlink(missing_ok=True)
    for name, data in contents.items():
        _replace(folder / name, data)
    return {name: folder / name for name in contents}


def _replace(path: Path, data: bytes) -> None:
    """The whole file or none of it, whenever the process ends."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
