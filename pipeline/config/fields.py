"""What the checks of several parts of the config share."""

import re
from typing import Any

from manifests.errors import UserError
from manifests.yaml_config import ConfigError

# A shard's member is named by the version, and webdataset ends a key at the first dot (contract.md).
NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


def check(holds: bool, field: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(field, f"is {value!r}, allowed: {allowed}")


def check_name(field: str, value: str) -> None:
    check(NAME.fullmatch(value) is not None, field, value, "1 to 40 letters, digits, - and _ (no dots, it names files)")


def resolve_filters(spec: Any, field: str) -> Any:
    """pipeline.filters' own reading of a spec; its complaint, under the field's name."""
    from pipeline.filters.presets import resolve  # here, not above: it loads numba, which a mere --help does not need

    try:
        return resolve(list(spec) if isinstance(spec, tuple) else spec)
    except UserError as error:
        raise ConfigError(field, str(error)) from None
