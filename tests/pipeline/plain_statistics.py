"""Every statistic of a text by plain Python that does one obvious thing after another: what the kernels must equal."""

import re
from collections import Counter

from pipeline.kernels.prose import LOREM_IPSUM, SKIPPED
from pipeline.kernels.punctuation import PUNCTUATION_RANGES, TERMINAL_RANGES
from pipeline.kernels.stop_words import MARKERS, STOP_WORDS

PUNCTUATION = {chr(code) for first, last in PUNCTUATION_RANGES for code in range(first, last + 1)}
TERMINAL = {chr(code) for first, last in TERMINAL_RANGES for code in range(first, last + 1)}
CITATIONS = re.compile(r"(\[[0-9]*\]|\[edit\]|\[citation needed\])+$")
SENTENCE_END = re.compile(r"[.?!…][\"')\]}»”’]*$")


def lower(word: str) -> str:
    """Simple lower case: one character for one, whatever stands around it."""
    return "".join(character.lower()[0] for character in word)


def plain_words(text: str) -> list[str]:
    return [lower(word) for word in re.findall(r"\w+", text)]


def duplicates(items: list[str]) -> list[str]:
    seen: set[str] = set()
    return [item for item in items if item in seen or seen.add(item)]


def num_chars(items: list[str]) -> int:
    return sum(map(len, items))


def ascii_lower(text: str) -> str:
    return re.sub("[A-Z]", lambda match: match[0].lower(), text)


def plain_prose(text: str) -> dict[str, int]:
    counts = Counter[str]()
    found = set(plain_words(text))
    has_lorem, has_skipped = (bool(found & set(words)) for words in MARKERS.values())
    for line in text.split("\n"):
        words = line.split()
        stripped = CITATIONS.sub("", line.strip())
        if len(words) < 3 or any(len(word) > 1000 for word in words):
            continue
        if not stripped.endswith((".", "?", "!", '"', "'")) or stripped.endswith("..."):
            continue
        counts["num_lorem_ipsum_lines"] += has_lorem and any(phrase in ascii_lower(line) for phrase in LOREM_IPSUM)
        if has_skipped and any(phrase in ascii_lower(line) for phrase in SKIPPED):
            continue
        counts["num_prose_lines"] += 1
        ended = [SENTENCE_END.search(CITATIONS.sub("", word)) is not None for word in words]
        counts["num_prose_sentences"] += sum(ended) + (not ended[-1])
        counts["num_curly_bracket_lines"] += "{" in line
    names = ("num_prose_lines", "num_prose_sentences", "num_curly_bracket_lines", "num_lorem_ipsum_lines")
    return {name: counts[name] for name in names}


def plain_repetition(words: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for n in (2, 3, 4):
        ngrams = [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
        top, repeats = Counter(ngrams).most_common(1)[0] if ngrams else ("", 0)
        counts[f"num_top_{n}gram_repeats"] = repeats
        counts[f"num_top_{n}gram_chars"] = repeats * len(top)
    for n in range(5, 11):
        seen: set[tuple[str, ...]] = set()
        total = place = 0
        while place + n <= len(words):
            ngram = tuple(words[place : place + n])
            if ngram in seen:
                total += num_chars(list(ngram))
                place += n
            else:
                seen.add(ngram)
                place += 1
        counts[f"num_duplicate_{n}gram_chars"] = total
    return counts


def plain_statistics(text: str) -> dict[str, int]:
    words = text.split()
    symbol_words = [word for word in words if set(word) <= PUNCTUATION]
    lines = text.removesuffix("\n").split("\n") if text else []
    nonempty = [line for line in lines if line]
    filled = [line for line in lines if line.strip()]
    paragraphs = re.split("\n{2,}", text.strip()) if words else []
    found = set(plain_words(text))
    return {
        "num_bytes": len(text.encode()),
        "num_chars": len(text),
        "num_letters": sum(character.isalpha() for character in text),
        "num_cyrillic_letters": sum(c.isalpha() and "\u0400" <= c <= "\u052f" for c in text),
        "num_digits": sum(character.isalnum() and not character.isalpha() for character in text),
        "num_words": len(words),
        "num_word_chars": num_chars(words),
        "num_symbol_words": len(symbol_words),
        "num_symbol_word_chars": num_chars(symbol_words),
        "num_alphabetic_words": sum(any(character.isalpha() for character in word) for word in words),
        "num_hash_signs": text.count("#"),
        "num_ellipses": text.count("...") + text.count("…"),
        "num_curly_brackets": text.count("{"),
        "num_lines": len(lines),
        "num_bullet_lines": sum(line.lstrip().startswith(("•", "-")) for line in lines),
        "num_ellipsis_lines": sum(line.rstrip().endswith(("...", "…")) for line in lines),
        "num_nonempty_lines": len(nonempty),
        "num_duplicate_lines": len(duplicates(nonempty)),
        "num_duplicate_line_chars": num_chars(duplicates(nonempty)),
        "num_filled_lines": len(filled),
        "num_terminal_lines": sum(line[-1] in TERMINAL for line in filled),
        "num_short_lines": sum(len(line) <= 30 for line in filled),
        "num_duplicate_filled_line_chars": num_chars(duplicates(filled)),
        "num_newlines": text.count("\n"),
        "num_paragraphs": len(paragraphs),
        "num_duplicate_paragraphs": len(duplicates(paragraphs)),
        "num_duplicate_paragraph_chars": num_chars(duplicates(paragraphs)),
        **plain_prose(text),
        **plain_repetition(words),
        "num_stop_words_en": len(found & set(STOP_WORDS["en"])),
        "num_stop_words_ru": len(found & set(STOP_WORDS["ru"])),
    }
