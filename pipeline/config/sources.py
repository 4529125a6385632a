"""Where text comes from and how it is read, cleaned and redacted."""

# ruff: noqa: RUF009 - setting() is dataclasses.field with a line of explanation

import dataclasses
from typing import Literal

from manifests.yaml_config import setting
from pipeline.charset_names import GUESS, is_charset
from pipeline.config.fields import check, check_name, resolve_filters

# Copies of a document. A model that sees one text more often than this has long learned it by heart.
MAX_WEIGHT = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleanConfig:
    """Which transforms clean the text: pipeline/transforms/ says what each does."""

    unicode: Literal["nfc", "none"] = setting("nfc: canonical composition, compatibility forms such as x² stay", "nfc")
    control_characters: Literal["remove", "keep"] = setting("NUL, escape sequences and their like", "remove")
    newlines: Literal["unify", "keep"] = setting("CR LF, CR, vertical tab and form feed become LF", "unify")
    zero_width: Literal["remove", "keep"] = setting(
        "invisible characters, save joiners that scripts and emoji need", "remove"
    )
    mojibake: Literal["repair", "keep"] = setting("text decoded by a wrong character set on its way", "keep")
    quoted_replies: Literal["remove", "keep"] = setting("mail: what a reply quotes", "keep")
    forwarded_headers: Literal["remove", "keep"] = setting("mail: the headers of what is forwarded", "keep")
    signatures: Literal["remove", "keep"] = setting("mail: signatures and closings", "keep")
    disclaimers: Literal["remove", "keep"] = setting("mail: legal disclaimers and list footers", "keep")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """One named group of input files."""

    name: str = setting("what manifest and report call it: letters, digits, - and _")
    paths: tuple[str, ...] = setting("files, folders (recursive) and globs (* ? [] **), local or s3://bucket/key")
    format: Literal["auto", "jsonl", "json", "parquet", "csv", "text", "html", "mbox", "eml"] = setting(
        "auto: by content and name; archives are opened in any case", "auto"
    )
    text: str = setting("the field that holds the text; a.b for a field inside another", "text")
    id: str | None = setting(
        "the field that holds the id; a record without it, or null here: its place is its id", "id"
    )
    date: str | None = setting(
        "the field that says when the record was written (ISO 8601, RFC 2822, seconds since 1970), for dedup.keep:"
        " newest; of mails their header says it",
        None,
    )
    encoding: str | None = setting(
        "character set of files without a byte-order mark: cp1251, koi8-r, ...; guess: told from a text file's bytes"
        " where they are no UTF-8; null: UTF-8",
        None,
    )
    markup: Literal["html"] | None = setting(
        "html: the text field of JSON, CSV or Parquet holds HTML, whose visible text is taken", None
    )
    weight: float = setting("copies of each document in training; 2.5: two, and of half of them a third", 1.0)
    priority: int = setting("of two duplicates the one from the source with the higher priority stays", 0)
    clean: CleanConfig | None = setting("cleaning for this source alone, instead of the common `clean`", None)
    preset: str | None = setting(
        "filters for this source alone, by a preset's name, instead of the common `filters`", None
    )

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check(len(self.paths) > 0, "paths", list(self.paths), "at least one path")
        for index, path in enumerate(self.paths):
            check(path != "" and "\0" not in path, f"paths.{index}", path, "a path, a glob or s3://bucket/prefix")
        check(self.text != "", "text", self.text, "a field's name")
        check(
            self.encoding is None or self.encoding == GUESS or is_charset(self.encoding),
            "encoding",
            self.encoding,
            "a character set that Python knows (cp1251, koi8-r, utf-16-le, ...), guess, or null for UTF-8",
        )
        check(self.id != "", "id", self.id, "a field's name, or null for ids by place")
        check(self.date != "", "date", self.date, "a field's name, or null for no dates")
        check(
            0 < self.weight <= MAX_WEIGHT,
            "weight",
            self.weight,
            f"above 0, up to {MAX_WEIGHT} (to leave it out, remove it)",
        )
        if self.preset is not None:
            resolve_filters(self.preset, "preset")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RedactConfig:
    """What is replaced by a typed placeholder: pipeline/redaction/ says what each rule finds, keeps and misses."""

    all: bool = setting("every rule whose own key does not say otherwise", False)
    email: bool | None = setting("e-mail addresses -> [EMAIL]; null: as `all`", None)
    phone: bool | None = setting("telephone numbers -> [PHONE]", None)
    ip_address: bool | None = setting("IPv4 and IPv6 addresses -> [IP_ADDRESS]", None)
    payment_card: bool | None = setting("payment cards by issuer and Luhn digit -> [PAYMENT_CARD]", None)
    iban: bool | None = setting("bank accounts by length and remainder -> [IBAN]", None)
    inn: bool | None = setting("Russian taxpayer numbers by check digits -> [INN]", None)
    snils: bool | None = setting("Russian social insurance numbers by check digits -> [SNILS]", None)
    passport: bool | None = setting("Russian passports -> [PASSPORT]", None)
    api_key: bool | None = setting("keys and tokens of services -> [API_KEY]", None)
    private_key: bool | None = setting("blocks of private keys -> [PRIVATE_KEY]", None)
    url_password: bool | None = setting("passwords in URLs -> [PASSWORD]", None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadRecordsConfig:
    """How much unreadable input a build accepts."""

    budget_fraction: float = setting("share of a source's records that may be unreadable before the build stops", 0.001)

    def __post_init__(self) -> None:
        check(0 <= self.budget_fraction <= 1, "budget_fraction", self.budget_fraction, "0 to 1")
