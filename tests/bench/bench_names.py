"""How long a 2 kB text takes that is searched for names and addresses, and what the finder weighs.

PYTHONPATH=appliance:tests python tests/bench/bench_names.py [MODELS]
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from statistics import median

from conductor.detect.names import NameFinder
from detection.names_set import LANGUAGES, samples

MODELS = Path(__file__).parents[2] / "var" / "models"
TEXT_BYTES = 2000
RUNS = 15


def texts(language: str, count: int) -> list[str]:
    """Different texts of about 2 kB, in which every second sentence holds a name or an address."""
    named = [sample.text for sample in samples(language) if sample.gold]
    plain = [sample.text for sample in samples(language) if not sample.gold]
    made, at = [], 0
    for _ in range(count):
        text = ""
        while len(text.encode()) < TEXT_BYTES:
            text += f"{named[at % len(named)]} {plain[at % len(plain)]} "
            at += 7
        made.append(text.encode()[:TEXT_BYTES].decode(errors="ignore"))
    return made


def measure(finder: NameFinder, made: list[str]) -> tuple[float, float, float]:
    """Median and least wall clock, and median processor time, of unseen texts; milliseconds."""
    wall, processor = [], []
    for text in made:
        finder.forget()
        begin, used = time.perf_counter(), time.process_time()
        finder.spans(text)
        wall.append(1e3 * (time.perf_counter() - begin))
        processor.append(1e3 * (time.process_time() - used))
    return median(wall), min(wall), median(processor)


def resident_mb() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Print a line a setting."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else MODELS
    before = resident_mb()
    begin = time.perf_counter()
    finder = NameFinder.open(folder)
    took = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"names, open: {took:.2f} s, {resident_mb() - before:.0f} MB more, peak {peak:.0f} MB")
    for threads in (1, 2):
        finder = NameFinder.open(folder, threads=threads)
        for language in LANGUAGES[:3]:
            made = texts(language, RUNS)
            wall, least, processor = measure(finder, made)
            begin = time.perf_counter()
            finder.spans(made[-1])
            again = 1e3 * (time.perf_counter() - begin)
            print(
                f"names, 2 kB {language}, {threads} threads: {wall:.1f} ms wall "
                f"(least {least:.1f}), {processor:.1f} ms processor, seen before {again:.2f} ms"
            )


if __name__ == "__main__":
    main()
