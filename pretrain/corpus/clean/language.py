"""`language`: documents in other languages are dropped, by the package py3langid, which brings its model along."""

from __future__ import annotations

from dataclasses import dataclass

from ernie.data.raw import RawDocument
from ernie.errors import UserError
from pretrain.corpus.clean.base import Filter, Rejected, check_shares, filters, require
from pretrain.corpus.language import check_identifiable, identify


@filters.register("language")
@dataclass(frozen=True)
class Language(Filter):
    """Drops documents that are not in one of the languages `keep`, or whose language is uncertain.

    Languages are given by codes of ISO 639-1, such as `en`.  `min_probability` is that of the most probable language.
    Source: langid.py (Lui and Baldwin, 2012); the threshold is FineWeb's (Penedo et al., 2024, section 3.3).
    """

    keep: list[str]
    min_probability: float = 0.65

    def __post_init__(self) -> None:
        super().__post_init__()
        require("py3langid", "language")
        check_shares(self, "min_probability")
        if not self.keep:
            raise UserError("keep: expected at least one language, such as en")
        check_identifiable("keep", self.keep)

    def apply(self, document: RawDocument) -> RawDocument | Rejected:
        """Return the document, or the language that it seems to be in."""
        language, probability = identify(document.text)
        if probability < self.min_probability:
            return Rejected("uncertain", f"{language} with probability {probability:.2f}")
        return document if language in self.keep else Rejected(language, f"its language is {language}")
