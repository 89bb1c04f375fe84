"""Target `triton`: the bundle again, with every kernel of the ops compiled beside it, signed anew.

    triton/sm_90/kernels.json   how each is started (`conductor_kernels/kernelfile.py`)
    triton/sm_90/*.cubin *.ptx  machine code, and what it was assembled from
    report/kernels.json .md     registers, spills and loads of each

All other files are those of the given bundle, byte for byte. What an earlier compile left is
replaced. Nothing stands at `out` before the last step, so one that is interrupted leaves no bundle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from conductor.errors import BundleError, StartError
from conductor.planner.kinds import LM
from conductor.planner.manifest import Refusal
from conductor_build.bundle import LmFacts, write_bundle
from conductor_build.compile import pool, report
from conductor_build.compile.failed import CompileFailed
from conductor_build.compile.gates import faults, read_ceilings
from conductor_kernels.architectures import ARCHITECTURES
from conductor_kernels.catalogue import OPS, source_hash
from conductor_kernels.kernelfile import FOLDER, RECORD, BuiltKernels, encode

if TYPE_CHECKING:
    from conductor.planner.bundle import Bundle
    from conductor_build.compile.compiler import Compiled
    from conductor_build.compile.targets import Options


def compile_triton(bundle: Bundle, out: Path, options: Options, package: str = OPS) -> Path:
    """Write the bundle at `out`, a new folder. `package`: whose kernels are compiled.

    Raises `StartError`, also for a kernel that a gate refuses unless that is allowed,
    `CompileFailed` and `BundleError`; then `out` is as it was.
    """
    if options.key is None:
        raise StartError("a compiled bundle is signed anew: give the private key with --sign")
    if bundle.manifest.kind != LM.name:
        raise StartError("only a language model runs on kernels: this bundle is of another kind")
    names = options.architectures or tuple(ARCHITECTURES)
    if strange := [name for name in names if name not in ARCHITECTURES]:
        known = ", ".join(ARCHITECTURES)
        raise StartError(f"nothing is compiled for {strange[0]}: take some of {known}")
    _refuse_present(out)
    ceilings = read_ceilings()
    compiled = _compiled(package, names, options)
    found = _report(bundle, compiled, package, ceilings, options.allow_faults)
    _refuse_faults(found.faults, options)
    files = _kept(bundle) | _kernel_files(compiled, source_hash(package)) | found.files()
    written = write_bundle(out, files, _facts(bundle), options.key, lambda new: _same(bundle, new))
    return written.path


def _refuse_present(out: Path) -> None:
    """Told before minutes of work; the writing itself refuses the same."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BundleError(Refusal.WRITE, f"something is at {out} already: give a new folder")


def _refuse_faults(found: Mapping[tuple[str, str], Sequence[str]], options: Options) -> None:
    """All are told; the error names the first."""
    lines = [
        f"{name}, {architecture}: {fault}"
        for (architecture, name), texts in found.items()
        for fault in texts
    ]
    for line in lines:
        options.say(line)
    if lines and not options.allow_faults:
        raise StartError(
            f"{len(found)} compiled kernels are refused, the first for this: {lines[0]}. Take a "
            "release whose kernels pass with this Triton, or give --allow-faults"
        )


def _compiled(package: str, names: Sequence[str], options: Options) -> list[Compiled]:
    """In the order of architectures and kernels, whatever was ready first. What the compiler says
    of one that fails is for whoever wrote it, and told apart from the error."""
    with pool.processes(options.jobs) as running:
        kernels = pool.kernels_of(running, package)
        if not kernels:
            raise StartError(f"{package} lists no kernels: install the appliance again")
        total, made = len(kernels) * len(names), []
        options.say(f"{len(kernels)} kernels for {', '.join(names)}, {options.jobs} at once")
        try:
            for one in pool.compile_all(running, package, [*kernels], names):
                made.append(one)
                options.say(_line(one, len(made), total))
        except CompileFailed as error:
            options.say(error.details)
            raise
    return sorted(made, key=lambda one: (ARCHITECTURES[one.architecture], one.name))


def _line(one: Compiled, count: int, total: int) -> str:
    registers = one.figures.registers
    return f"{count:4}/{total}  {one.architecture:6}  {one.name}  {registers} registers"


def _kept(bundle: Bundle) -> dict[str, bytes | Path]:
    """All that is not of an earlier compile; weights by their place, which are copied in pieces."""
    return {
        path: bundle.path / path if LM.is_weights(path) else bundle.read(path)
        for path in bundle.manifest.files
        if not _ours(path)
    }


def _ours(path: str) -> bool:
    return path.startswith(f"{FOLDER}/") or path in (report.JSON, report.MARKDOWN)


def _kernel_files(compiled: Sequence[Compiled], source: str) -> dict[str, bytes | Path]:
    files: dict[str, bytes | Path] = {}
    for name in dict.fromkeys(one.architecture for one in compiled):
        own = [one for one in compiled if one.architecture == name]
        kernels = {one.name: one.built for one in own}
        record = BuiltKernels(name, ARCHITECTURES[name].code, version("triton"), source, kernels)
        files[f"{FOLDER}/{name}/{RECORD}"] = encode(record)
        files |= {f"{FOLDER}/{name}/{one.name}.cubin": one.cubin for one in own}
        files |= {f"{FOLDER}/{name}/{one.name}.ptx": one.ptx for one in own}
    return files


def _report(
    bundle: Bundle,
    compiled: Sequence[Compiled],
    package: str,
    ceilings: Mapping[str, int],
    allowed: bool,
) -> report.Report:
    found = {(one.architecture, one.name): list(faults(one, ceilings)) for one in compiled}
    said = {pair: texts for pair, texts in found.items() if texts}
    made_by = version("triton"), source_hash(package)
    return report.Report(bundle.id, *made_by, compiled, said, allowed)


def _facts(bundle: Bundle) -> LmFacts:
    manifest = bundle.manifest
    assert manifest.prompt, "of kind lm"
    assert manifest.precision, "of kind lm"
    made: Mapping[str, str] = {**manifest.provenance.versions, "triton": version("triton")}
    return LmFacts(manifest.prompt, manifest.precision, replace(manifest.provenance, versions=made))


def _same(old: Bundle, new: Bundle) -> None:
    """That weights, which are read a second time to be copied, are those that were checked."""
    kept = {path: fact for path, fact in old.manifest.files.items() if not _ours(path)}
    if changed := [path for path, fact in kept.items() if new.manifest.files.get(path) != fact]:
        raise BundleError(Refusal.TAMPERED, f"{changed[0]} changed meanwhile: compile it again")
