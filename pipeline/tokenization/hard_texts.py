"""Texts that tell engines apart: scripts, forms, long runs, controls, names of special tokens, white space, numbers."""

from pipeline.tokenization.plain import PlainTokenizer

HARD_TEXTS = (
    "",
    " ",
    "\n\n\n \t\r\n  x",
    "The quick brown fox jumps over the lazy dog's tail, 12345678901 times.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю — №42, «ёлка».",
    "日本語とカタカナ、한국어, ไทย, العربية, עברית, हिन्दी, ελληνικά",
    "ქართული ენა, հայերեն, አማርኛ, தமிழ், ᏣᎳᎩ, ᠮᠣᠩᠭᠣᠯ, 𐎠𐎢𐎼, 𒀭𒂗𒆤, 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "e\u0301 é ﬁ x² ½ Ⅷ ａｂｃ İstanbul ǅ ß ẞ ſ \u212a \u212b",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇷🇺 👍🏽 \u200d\u200b\ufeff ☎️ 1️⃣ 🧑🏻‍❤️‍💋‍🧑🏿",
    "a\u0300\u0301\u0302\u0303\u0304\u0305 z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢ \u0301 \u0301\u0301x",
    "\x01\x02\x1b[31mred\x1b[0m\x7f\x80\x85\u2028\u2029\u3000 \x0b\x0c\x1c\x1d\x1e\x1f\xa0\u180e\u2000\u202f",
    "=" * 3000 + "a" * 3000 + "я" * 3000 + " " * 3000,
    "\n" * 2000 + "\t" * 2000 + "0" * 2000 + "-+" * 1000 + "\r\n" * 500,
    "<|endoftext|></s><s><|im_start|>user<think>x</think><｜User｜>[SEP][CLS]<pad><0x0A>▁▁Ġ",
    "def f(x):\n    return x**2  # don't I'm we'll THEY'VE O'CLOCK it'ſ\n\n\n\tif x:\n",
    "https://example.org/a?b=c&d=%20#e user000001@example.org 192.0.2.1 v1.2.3-rc4 0xDEADBEEF ٣٤٥ ²³ १२३",
    "\U0001fae8\U000e0041\ue000\U0010ffff\ufffd\ufdd0\U00016d40\u1c89",
    "trailing space \n and\u00a0tabs\t \t\n   indented\n\u3000\u3000全角",
)

CODE_POINT_STEP = 61
"""Every 61st code point of Unicode stands in a text: 18,000 of them, a prime so that no block is met at one place only.
All 1.1 million are compared in the tests; here they would cost a second a worker.
"""
CODE_POINTS_A_TEXT = 600


def hard_texts(tokenizer: PlainTokenizer) -> list[str]:
    """HARD_TEXTS, a grid of code points, and the names of this very tokenizer's added tokens, alone and in words."""
    points = [chr(i) for i in range(0, 0x110000, CODE_POINT_STEP) if not 0xD800 <= i < 0xE000]
    grid = ["".join(points[i : i + CODE_POINTS_A_TEXT]) for i in range(0, len(points), CODE_POINTS_A_TEXT)]
    names = tokenizer.names
    return [*HARD_TEXTS, *grid, " ".join(names), "x".join(names), *names[:100]]
