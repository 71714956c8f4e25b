"""The natural language of a text: by script where the script decides, else by py3langid (a naive Bayes model over
byte n-grams, Lui & Baldwin 2012; 4.5 MB, offline).

A document's own statement is better than any guess, save one: "en" is what templates and word processors state when
nobody chose, and it is not believed of words in another script.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

UNKNOWN = "und"

_WINDOW = 20_000
_SAMPLE = 2_000
_MIN_WORDS = 3
_MIN_CONFIDENCE = 0.5
_NOT_PROSE = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,}).*?(?:^ {0,3}(?P=fence)[`~]*[ \t]*$|\Z)"  # fenced code
    r"|`[^`\n]*`"
    r"|https?://\S+"
    r"|</?[A-Za-z][^>\n]*>",
    re.MULTILINE | re.DOTALL,
)
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_KANA = re.compile(r"[\u3041-\u30ff\uff66-\uff9f]")
_HANGUL = re.compile(r"[\uac00-\ud7af\u1100-\u11ff]")
_WORD = re.compile(r"[^\W\d_]{2,}")
# Scripts of one language, as far as documents go. The others (Latin, Cyrillic, Arabic, Devanagari) go to the model.
_SCRIPTS = {
    "th": re.compile(r"[\u0e01-\u0e5b]"),
    "el": re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]"),
    "he": re.compile(r"[\u05d0-\u05ea]"),
    "hy": re.compile(r"[\u0531-\u0587]"),
    "ka": re.compile(r"[\u10a0-\u10ff]"),
    "ta": re.compile(r"[\u0b80-\u0bff]"),
    "te": re.compile(r"[\u0c00-\u0c7f]"),
    "bn": re.compile(r"[\u0980-\u09ff]"),
}
# Without this list short English texts come out as Breton or Nigerian Pidgin.
_MODEL_LANGUAGES = (
    "ar", "bg", "ca", "cs", "da", "de", "en", "es", "et", "eu", "fa", "fi", "fr", "ga", "hi", "hr", "hu", "id", "it",
    "lt", "lv", "mr", "ne", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sr", "sv", "tr", "uk", "ur", "vi",
)  # fmt: skip


def detect_language(text: str) -> str:
    """Return the ISO 639-1 code of the language of ``text``, or "und". Code blocks and markup do not count."""
    sample = _NOT_PROSE.sub(" ", text[:_WINDOW])[:_SAMPLE]
    words = len(_WORD.findall(sample))
    han, kana, hangul = (len(script.findall(sample)) for script in (_HAN, _KANA, _HANGUL))
    # A run of Han counts as one word above, so characters weigh against words of other scripts.
    if han + kana + hangul > 0.3 * (words + han + kana + hangul):
        if hangul > han + kana:
            return "ko"
        return "ja" if kana > 0.1 * (han + kana) else "zh"
    letters = sum(map(str.isalpha, sample))
    for language, script in _SCRIPTS.items():
        if len(script.findall(sample)) > 0.5 * letters > 0:
            return language
    if words < _MIN_WORDS:
        return UNKNOWN
    language, confidence = _identifier().classify(sample)
    return str(language) if confidence >= _MIN_CONFIDENCE else UNKNOWN


def language_of(stated: str | None, text: str) -> str:
    """Return the stated language (ISO 639), or the detected one where none is stated or where it cannot be."""
    if stated is not None and stated != "en":
        return stated
    detected = detect_language(text)
    if stated is None:
        return detected
    letters = [letter for letter in text[:_SAMPLE] if letter.isalpha()]
    latin = sum(letter < "\u0250" for letter in letters)
    return detected if detected != UNKNOWN and 2 * latin < len(letters) else stated


@functools.cache
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(_MODEL_LANGUAGES)
    return identifier
