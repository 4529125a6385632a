"""Which files are no data by their names: what systems and tools leave beside data."""


def no_data(path: str) -> str | None:
    """Why the file at `path`, "/"-separated and below the folder or archive that was named, is no data; None if it is."""
    for part in filter(None, path.split("/")):
        if part.startswith(".") and part not in (".", ".."):
            return "a hidden file or folder"
        if part.startswith("_"):
            return "a marker (its name, or its folder's, starts with _)"
    if path.endswith(".crc"):
        return "a checksum file"
    return None
