"""Which files are no data by their names: what systems and tools leave beside data."""

MARKERS = frozenset(
    {"_SUCCESS", "_FAILURE", "_temporary", "_metadata", "_common_metadata", "_delta_log", "_spark_metadata", "_logs"}
    | {"__MACOSX", "Thumbs.db", "desktop.ini"}
)


NO_TEXT = {
    "a picture": "apng avif bmp gif heic ico jpeg jpg png psd svg svgz tif tiff webp",
    "a font": "eot otf ttf woff woff2",
    "sound or video": "avi flac flv m4a m4v mkv mov mp3 mp4 oga ogg ogv opus wav weba webm wmv",
    "a style sheet or script of pages": "css js map mjs scss",
    "compiled code": "a class dll dylib exe o obj pyc pyd pyo so wasm",
}
"""Kinds of files that lie beside text and are none, and how their names end. What may be text that somebody wants, such
as program source or XML, is not here.
"""
_NO_TEXT_OF_ENDING = {ending: kind for kind, endings in NO_TEXT.items() for ending in endings.split()}


def no_text(path: str) -> str | None:
    """Why the file at `path` is no data for who did not name a format: `no_data`, or its ending is one of NO_TEXT."""
    stem, _, ending = path.rpartition("/")[2].rpartition(".")
    return no_data(path) or (_NO_TEXT_OF_ENDING.get(ending.lower()) if stem else None)


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
