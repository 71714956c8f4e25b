"""Text to BM25 terms, the same for documents and for questions.

The language of a question is not known, so nothing here asks for one: the *script* of a word decides how it is
treated.

- Latin words are stemmed by the English Snowball rules whatever their language, since both sides must agree. On German
  text that does no harm against no stemming (54.1 against 53.8 % of 952 headings find their section in the first five;
  German rules would find 57.0 %). Other alphabets have their own rules.
- Chinese (and kanji) becomes words by jieba, pairs of characters, and characters: a pair that is a word counts twice,
  and what the dictionary does not know is still found by its pairs. On cmrc2018, R@1 / R@5: all three 96.5 / 99.5 %,
  characters and pairs 96.3 / 99.5, words and pairs 96.7 / 99.4, pairs alone 95.8 / 99.3, words alone 95.9 / 98.9.
- Kana, Hangul and the scripts of South-East Asia become pairs of characters.

What people search for by the letter is kept by the letter, and also found by its parts:

- ``getUserName`` -> getusernam, get, user, name        (an alphabetic whole is stemmed, as the same word typed in
  lower case is)
- ``http_status_code`` -> http_status_code, http, status, code
- ``E-4021`` -> e-4021, e4021, e, 4021                  (so that ``E4021`` and ``error 4021`` find it)
- ``v3.8.1`` -> v3.8.1, 3.8.1, 3.8                      (beginnings, since single digits say nothing)
- ``src/api/errors.py`` -> the path, errors.py, src, api, error, py
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise

from schemas.config import Bm25Config

ANALYZER_VERSION = 2

_STOP_WORDS = """
a an and are as at be been but by can could did do does for from had has have how i if in into is it its may me might my
no not of on or our shall she should so some such than that the their them then there these they this those to us was
we were what when where which who whom whose why will with would you your
don doesn didn isn aren wasn weren hasn haven hadn couldn wouldn shouldn
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
_CONTRACTIONS = frozenset({"s", "t", "d", "m", "re", "ve", "ll"})

_LONGEST_WHOLE = 64  # Longer compounds are addresses and encoded data; their parts are indexed.
_LONGEST_TERM = 256
_CACHED_TOKENS = 400_000

_HAN = "\u2e80-\u2fdf\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA_HANGUL = "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uac00-\ud7a3"
_THAI_LAO_BURMESE_KHMER = "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"
_PAIRED = _KANA_HANGUL + _THAI_LAO_BURMESE_KHMER

_SCRIPTS = (
    (0x0370, 0x03FF, "greek"),
    (0x1F00, 0x1FFF, "greek"),
    (0x0400, 0x052F, "russian"),
    (0x0530, 0x058F, "armenian"),
    (0x0600, 0x06FF, "arabic"),
    (0x0900, 0x097F, "hindi"),
    (0x0B80, 0x0BFF, "tamil"),
)
"""First and last code point of an alphabet, and the Snowball rules for its words."""

_UNDECOMPOSED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"}
)

_MARKED = r"\d{1,3}(?:,\d{3})+(?!\d|,\d)(?:\.\d+)?|[cC]\+\+|[cCfF]#"
"""Numbers with grouped thousands, and the names of languages that end in a mark."""

_VERSION = re.compile(r"[vV]?(\d+(?:\.\d+)+)")
_HEXADECIMAL = re.compile(r"0[xX]([0-9a-fA-F]+)")
_HUMPS = re.compile(r"[A-Z]{2,}s(?![A-Za-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS_OR_DIGITS = re.compile(r"\d+|\D+")
_DIVISIONS = tuple(re.compile(rule) for rule in ("/", r"(?<!\d)\.|\.(?!\d)", "-", "_", r"\."))
"""Where compounds are divided, outermost first; a full stop between digits holds a version together."""

_UNSPACED_PATTERN = re.compile(f"[{_HAN}{_PAIRED}]")
_PAIRED_PATTERN = re.compile(f"[{_PAIRED}]")


@lru_cache(maxsize=1)
def _token_pattern() -> re.Pattern[str]:
    # ``\w`` leaves out combining marks, which would cut Hindi and pointed Arabic within words; hence our own class.
    # Its many ranges compile to a bitmap, so that it is as fast as ``\w``.
    ranges: list[list[int]] = []
    for code in range(0x80, 0x10000):
        character = chr(code)
        if (character.isalnum() or unicodedata.category(character) in {"Mn", "Mc"}) and not _UNSPACED_PATTERN.match(
            character
        ):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    others = "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges)
    atom = f"[0-9A-Za-z{others}\U00010000-\U0001cfff]"
    return re.compile(rf"{_MARKED}|{atom}+(?:(?:[-./'’]|_+){atom}+)*|[{_HAN}]+|[{_PAIRED}]+")


@lru_cache(maxsize=1)
def _ascii_token_pattern() -> re.Pattern[str]:
    return re.compile(rf"{_MARKED}|[0-9A-Za-z]+(?:(?:[-./']|_+)[0-9A-Za-z]+)*")


class Analyzer:
    """Terms of texts. Stateless but for a cache of tokens seen: equal texts give equal terms, whatever came before."""

    def __init__(self, config: Bm25Config) -> None:
        self._stem_words = config.stem
        self._known: dict[str, tuple[str, ...]] = {}
        self._stemmers: dict[str, Callable[[str], str]] = {}

    def terms(self, text: str) -> list[str]:
        """Return the terms of ``text`` in the order of its words, repetitions included.

        Text is normalised (NFKC, case folded; Latin letters lose their accents) and English function words are left
        out, so that a text may have no terms at all.
        """
        tokens = _ascii_token_pattern().findall(text) if text.isascii() else _token_pattern().findall(_normalised(text))
        known = self._known
        terms: list[str] = []
        for token in tokens:
            found = known.get(token)
            if found is None:
                found = self._analyse(token)
            terms += found
        return terms

    def _analyse(self, token: str) -> tuple[str, ...]:
        first = token[0]
        if first >= "\u0e00" and _is_unspaced(first):
            # Runs hardly repeat: caching them would only fill memory.
            return tuple(_pairs(token) if _is_paired(first) else _words_pairs_and_characters(token))
        plain = token.isalpha() and (token.islower() or token.isupper() or token.istitle())
        found = self._word(token) if plain else self._compound(token)
        terms = tuple(term for term in dict.fromkeys(found) if term)  # A lone accent leaves nothing.
        if len(self._known) >= _CACHED_TOKENS:
            self._known.clear()
        self._known[token] = terms
        return terms

    def _word(self, word: str) -> Iterator[str]:
        lowered = word.casefold()
        # "IT", "US" and "WHO" in capitals are names.
        if lowered not in STOP_WORDS or (len(word) > 1 and word.isupper()):
            yield self._stem(lowered)

    def _stem(self, lowered: str) -> str:
        if lowered.isascii():
            script = "english"
        elif (script := _script(lowered)) == "english":
            lowered = _without_accents(lowered)
        if not self._stem_words or not script:
            return lowered[:_LONGEST_TERM]
        stemmer = self._stemmers.get(script)
        if stemmer is None:
            from Stemmer import Stemmer

            stemmer = self._stemmers[script] = Stemmer(script, 0).stemWord
        return stemmer(lowered)[:_LONGEST_TERM]

    # --- compounds: identifiers, codes, numbers, paths ---------------------------------------------------------------

    def _compound(self, token: str) -> Iterator[str]:
        if token[-1] in "+#":
            yield token.lower()
        elif "," in token:
            yield token.replace(",", "")
        else:
            pieces = token.replace("’", "'").split("'")
            while len(pieces) > 1 and pieces[-1].lower() in _CONTRACTIONS:
                pieces.pop()
            for piece in pieces:
                yield from self._divide(piece, 0)

    def _divide(self, text: str, level: int) -> Iterator[str]:
        """Yield the whole (where it has parts) and then the terms of its parts."""
        if match := _VERSION.fullmatch(text):
            yield from _version(text, match[1])
            return
        for deeper in range(level, len(_DIVISIONS)):
            parts = [part for part in _DIVISIONS[deeper].split(text) if part]
            if len(parts) > 1:
                yield from self._whole(text, parts)
                for part in parts:
                    yield from self._divide(part, deeper + 1)
                return
        yield from self._alphanumeric(text)

    def _whole(self, text: str, parts: list[str]) -> Iterator[str]:
        if len(text) > _LONGEST_WHOLE:
            return
        if len(parts) == 2 and "-" in text and (joined := parts[0] + parts[1]).isalpha():
            yield self._stem(joined.casefold())  # e-mail is email, re-index is reindex.
            return
        yield text.casefold()
        for left, right in pairwise(parts):
            if (left.isalpha() and right.isdecimal()) or (left.isdecimal() and right.isalpha()):
                yield (left + right).casefold()

    def _alphanumeric(self, text: str) -> Iterator[str]:
        if match := _HEXADECIMAL.fullmatch(text):
            yield from (text.lower(), match[1].lower())
            return
        parts = (_HUMPS if text.isascii() else _LETTERS_OR_DIGITS).findall(text)
        if len(parts) == 1:
            yield from self._word(text)
        elif text.isalpha():
            yield self._stem(text.casefold())
            for part in parts:
                yield from self._word(part)
        else:
            yield text.casefold()[:_LONGEST_TERM]
            changes = sum(a.isdecimal() != b.isdecimal() for a, b in pairwise(parts))
            if changes <= 2:  # More of them make a hash or a random id, whose parts say nothing.
                for part in parts:
                    yield from self._word(part)


def _version(text: str, number: str) -> Iterator[str]:
    if text != number:
        yield text.lower()
    yield number
    components = number.split(".")
    for length in range(2, len(components)):
        yield ".".join(components[:length])


def _normalised(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    for character in "\u00ad\u200b\u2060\ufeff":  # Invisible: soft hyphen, zero-width space, word joiner, BOM.
        text = text.replace(character, "")
    return text.replace("\u2010", "-")


def _without_accents(lowered: str) -> str:
    decomposed = unicodedata.normalize("NFKD", lowered.translate(_UNDECOMPOSED))
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def _script(word: str) -> str:
    """Return the Snowball rules for a word that is not ASCII, "" where there are none for its alphabet."""
    code = next(ord(character) for character in word if character > "\x7f")
    if code < 0x0250 or 0x1E00 <= code <= 0x1EFF or 0x0300 <= code <= 0x036F:
        return "english"
    return next((rules for low, high, rules in _SCRIPTS if low <= code <= high), "")


def _is_paired(character: str) -> bool:
    return _PAIRED_PATTERN.match(character) is not None


def _is_unspaced(character: str) -> bool:
    return _UNSPACED_PATTERN.match(character) is not None


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] if len(run) > 1 else [run]


def _words_pairs_and_characters(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    import rjieba

    return [*run, *_pairs(run), *(word for word in rjieba.cut(run) if len(word) > 1)]
