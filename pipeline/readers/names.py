"""Which files are no data by their names: what systems and tools leave beside data."""

MARKERS = frozenset(
    {"_SUCCESS", "_FAILURE", "_temporary", "_metadata", "_common_metadata", "_delta_log", "_spark_metadata", "_logs"}
    | {"__MACOSX", "Thumbs.db", "desktop.ini"}
)


def no_data(path: str) -> str | None:
    """Why the file at `path` is no data by its name, None where it is.

    `path` is "/"-separated and starts below the folder or archive that was named. Only known markers go: `_thread.rst`
    and `_includes/x.md` are documentation.
    """
    for part in filter(None, path.split("/")):
        if part.startswith(".") and part not in (".", ".."):
            return "a hidden file or folder"
        if part in MARKERS or part.startswith(("_started_", "_committed_")):
            return "a marker of a tool"
    return "a checksum file" if path.endswith(".crc") else None
