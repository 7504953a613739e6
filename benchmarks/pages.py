"""Generated sections of the README and docs, from committed results.

    python -m benchmarks.pages

writes all of them, and the charts, from benchmarks/results/*.json; each benchmark does so after a full run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.results import Report, load, results_of

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
MEASURED = ROOT / "docs" / "measured.md"
DISTRIBUTED = ROOT / "docs" / "distributed.md"
CLUSTER = ROOT / "docs" / "cluster.md"
MESSAGING = ROOT / "docs" / "messaging.md"
LEARNERS = ROOT / "docs" / "learners.md"
REPLAYS = ROOT / "docs" / "replays.md"
SWEEPS = ROOT / "docs" / "sweeps.md"
VECTOR = ROOT / "docs" / "vector.md"
JAX = ROOT / "docs" / "jax.md"
GALLERY = ROOT / "docs" / "gallery.md"


@dataclass(frozen=True)
class Section:
    """What a page says of some results.

    Attributes:
        name: in the marks.
        page: the file that holds the section between two marks.
        sources: names of the results, as `write` takes them.
        write: returns the section as Markdown.
    """

    name: str
    page: Path
    sources: tuple[str, ...]
    write: Callable[..., str]

    @property
    def begin(self) -> str:
        """The mark before the section."""
        files = ", ".join(f"benchmarks/results/{source}.json" for source in self.sources)
        return f"<!-- {self.name}: written by `python -m benchmarks.pages` from {files} -->\n"

    @property
    def end(self) -> str:
        """The mark after it."""
        return f"<!-- end of {self.name} -->\n"

    def within(self, text: str, *reports: Report) -> str:
        """Return the text of the page with the section between its marks.

        Raises:
            ValueError: if a mark is missing.
        """
        before, begin, rest = text.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end:
            raise ValueError(
                f"{self.page.name}: expected the marks {self.begin!r} and {self.end!r}"
            )
        return f"{before}{begin}\n{self.write(*reports)}\n{end}{after}"


def sections() -> list[Section]:
    """Return the sections whose results have been committed, in the order of their pages."""
    # Here, as a benchmark's program needs the libraries of all others only once it writes the pages.
    from benchmarks import figures, summary, sweeps
    from benchmarks.distributed import report as distributed
    from benchmarks.end_to_end import jax_ppo, sac
    from benchmarks.end_to_end import report as end_to_end
    from benchmarks.gallery import report as gallery
    from benchmarks.messaging import report as messaging
    from benchmarks.operators import report as operators
    from benchmarks.peers import figures as peers
    from benchmarks.remote import report as remote
    from benchmarks.rollouts import report as rollouts
    from benchmarks.scaling import report as scaling
    from benchmarks.vector import report as vector

    all_sections = [
        Section("summary", README, ("peers", "end_to_end"), summary.markdown),
        Section("distributed", DISTRIBUTED, ("distributed",), distributed.short_table),
        Section("peers", MEASURED, ("peers",), peers.markdown),
        Section("end_to_end", MEASURED, ("end_to_end",), end_to_end.markdown),
        Section("off_policy", MEASURED, ("off_policy",), figures.markdown),
        Section("sac_curves", MEASURED, ("sac_curves",), sac.STUDY.markdown),
        Section("rollouts", MEASURED, ("rollouts",), rollouts.markdown),
        Section("remote", MEASURED, ("remote",), remote.markdown),
        Section("operators", MEASURED, ("operators",), operators.markdown),
        Section("distributed", MEASURED, ("distributed",), distributed.markdown),
        Section("messaging", MEASURED, ("messaging",), messaging.markdown),
        Section("foundation", MEASURED, ("foundation",), figures.markdown),
        Section("local_rollouts", CLUSTER, ("local_rollouts",), figures.markdown),
        Section("ray_fragments", CLUSTER, ("ray_fragments",), figures.markdown),
        Section("scaling", CLUSTER, ("rollouts",), rollouts.scaling_markdown),
        Section("cluster_sizes", CLUSTER, ("scaling",), scaling.markdown),
        Section("learners", LEARNERS, ("learners",), figures.markdown),
        Section("sweeps", SWEEPS, ("sweeps",), sweeps.markdown),
        Section("replays", REPLAYS, ("replays",), figures.markdown),
        Section("jax", JAX, ("jax",), figures.markdown),
        Section("jax_curves", JAX, ("jax_curves",), jax_ppo.STUDY.markdown),
        Section("vector", VECTOR, ("vector",), vector.markdown),
        Section("gallery", GALLERY, ("gallery", "sac_curves"), gallery.page),
        Section("hosts", MESSAGING, ("messaging",), messaging.hosts_markdown),
        Section("wire", MESSAGING, ("messaging",), messaging.wire_markdown),
    ]
    return [one for one in all_sections if all(results_of(name).exists() for name in one.sources)]


def update_pages() -> None:
    """Write what the committed results say into the pages."""
    for section in sections():
        reports = [load(source) for source in section.sources]
        section.page.write_text(section.within(section.page.read_text(), *reports))


def update_charts() -> None:
    """Draw the charts of the committed results."""
    from benchmarks.distributed import report as distributed
    from benchmarks.end_to_end import jax_ppo, sac
    from benchmarks.end_to_end import report as end_to_end
    from benchmarks.gallery import report as gallery
    from benchmarks.peers import figures as peers
    from benchmarks.rollouts import report as rollouts

    charts = {
        "peers": peers.draw,
        "end_to_end": end_to_end.draw,
        "sac_curves": sac.STUDY.draw,
        "jax_curves": jax_ppo.STUDY.draw,
        "gallery": gallery.draw,
        "rollouts": rollouts.draw,
        "distributed": distributed.draw,
    }
    for name, draw in charts.items():
        if results_of(name).exists():
            draw(load(name), results_of(name).with_suffix(".png"))


if __name__ == "__main__":
    update_pages()
    update_charts()
