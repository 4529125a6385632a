"""Show how a source's texts are distributed, where its filters cut, and the texts next to each cut.

Every rule of the source's filters gets a histogram with its limit in it, and documents kept and dropped nearest to it,
so that a threshold is chosen by looking: change it with --set, and look again. Nothing is written but the page.
"""

import argparse
import shutil
import sys

from manifests import storage
from manifests.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("config", metavar="CONFIG.yaml", help="the build's configuration")
    parser.add_argument("--source", metavar="NAME", help="which of its sources; needed where there are several")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, e.g. sources.0.preset=gopher"
    )
    parser.add_argument("--max-mb", type=float, default=32.0, metavar="MB", help="text to look at; default 32")
    parser.add_argument("--html", metavar="FILE", help="write a page instead of printing")
    parser.add_argument("--all", action="store_true", help="also show rules without a limit (the page always does)")


def run(options: argparse.Namespace) -> int:
    """Print the distributions, or write the page; returns 0, 1 where the source gives no text to look at."""
    from pipeline.config import load_config, resolved_filters  # here, not above: numba takes a second to load
    from pipeline.inspection.page import page
    from pipeline.inspection.panels import inspect
    from pipeline.inspection.sample import pick_source, read_sample
    from pipeline.inspection.terminal import draw
    from pipeline.kernels.text import analyse

    if options.max_mb <= 0:
        raise UserError(f"--max-mb is {options.max_mb:g}: give a number above 0")
    config = load_config(options.config, options.set)
    source = pick_source(config, options.source)
    filters = resolved_filters(config, source)
    if not filters:
        raise UserError(
            f"source {source.name} has no filters, so no thresholds to show: try --set sources.0.preset=documentation"
        )
    sample = read_sample(config, source, int(options.max_mb * 1e6))
    unreadable = ", ".join(f"{reason} {n:,}" for reason, n in sample.unreadable.most_common(3))
    if not len(sample.text):
        sys.stderr.write(
            f"source {source.name}: nothing to inspect, none of {sample.num_files_read:,} files gave a text"
            f" ({unreadable or 'no record has one'}): python -m pipeline read {options.config} shows each record\n"
        )
        return 1
    statistics, _ = analyse(sample.text)
    inspection = inspect(filters, statistics, sample.text, sample.names)
    size = f"{int(statistics.num_bytes.sum()) / 1e6:,.1f} MB of text"
    part = "the whole source" if sample.is_whole else f"from the beginning of each of {sample.num_files_read:,} files"
    described = f"{size}, {part}." + (f" Unreadable records left out: {unreadable}." if unreadable else "")
    title = f"{config.name}: {source.name}"
    if options.html:
        storage.write_bytes(storage.absolute(options.html), page(inspection, title=title, described=described).encode())
        sys.stdout.write(f"{options.html}\n")
        return 0
    width = shutil.get_terminal_size((120, 40)).columns
    sys.stdout.write(f"{title}\n{described}\n")
    sys.stdout.write(draw(inspection, width=width, colour=sys.stdout.isatty(), every_rule=options.all))
    return 0
