"""Show the distributions of a source's statistics with the filters' thresholds in them, and texts next to each."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("config", metavar="CONFIG.yaml", help="the build's configuration")
    parser.add_argument("--source", metavar="NAME", help="which of its sources; needed where there are several")


def run(options: argparse.Namespace) -> int:
    """Print the distributions; returns 0."""
    raise NotImplementedError(options)
