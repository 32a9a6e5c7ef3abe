"""The probability by CTC that a transcript begins with a prefix, for prefixes that grow token by token.

Watanabe et al., 2017, "Hybrid CTC/Attention Architecture for End-to-End Speech Recognition", IEEE JSTSP 11(8), section
IV.C; the recursion is that of Graves, 2008, "Supervised sequence labelling with recurrent neural networks", section
7.5.3.  All probabilities are logarithms.

Legend: T vectors, V vocabulary, H prefixes, C tokens that may follow each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Prefixes(NamedTuple):
    """Prefixes: their last tokens (H,), -1 where there is none yet, and the probabilities of their alignments (H, T).

    `ends_in_token` and `ends_in_blank` are those of the alignments of the first vectors up to each one.
    """

    last: np.ndarray
    ends_in_token: np.ndarray
    ends_in_blank: np.ndarray

    def select(self, chosen: np.ndarray) -> Prefixes:
        """Return some of the prefixes, by their numbers."""
        return Prefixes(self.last[chosen], self.ends_in_token[chosen], self.ends_in_blank[chosen])

    @property
    def whole(self) -> np.ndarray:
        """The probability that each prefix is the whole transcript, (H,)."""
        return np.logaddexp(self.ends_in_token[:, -1], self.ends_in_blank[:, -1])


class PrefixScorer:
    """Scores of one sound's prefixes, from the log-probabilities of the tokens at its vectors, (T, V)."""

    def __init__(self, log_TV: np.ndarray, blank: int):
        self._log_TV, self._blank = log_TV, blank

    def empty(self) -> Prefixes:
        """Return the prefix without tokens, of which all alignments are blanks."""
        blanks_T = self._log_TV[:, self._blank].cumsum()
        return Prefixes(np.array([-1]), np.full((1, len(blanks_T)), -np.inf), blanks_T[None])

    def extended(self, before: Prefixes, tokens_HC: np.ndarray) -> tuple[np.ndarray, Prefixes]:
        """Extend each prefix by each of its tokens.

        Returns the probabilities that the transcript begins with the new prefixes (H, C), and the H * C prefixes.
        """
        H, C = tokens_HC.shape
        token_THC = self._log_TV[:, tokens_HC]
        blank_T = self._log_TV[:, self._blank]
        nothing = np.where(before.last < 0, 0.0, -np.inf)[:, None]  # ahead of the first vector
        token_HT = np.concatenate([np.full((H, 1), -np.inf), before.ends_in_token[:, :-1]], 1)
        blank_HT = np.concatenate([nothing, before.ends_in_blank[:, :-1]], 1)
        # A token after itself needs a blank between both.
        repeats_HC = tokens_HC == before.last[:, None]
        either_HT = np.logaddexp(token_HT, blank_HT)
        begins_THC = np.where(repeats_HC, blank_HT.T[:, :, None], either_HT.T[:, :, None]) + token_THC
        in_token, in_blank = np.full((H, C), -np.inf), np.full((H, C), -np.inf)
        tokens_THC, blanks_THC = np.empty_like(begins_THC), np.empty_like(begins_THC)
        for t, begins_HC in enumerate(begins_THC):
            in_token, in_blank = (
                np.logaddexp(in_token + token_THC[t], begins_HC),
                np.logaddexp(in_blank, in_token) + blank_T[t],
            )
            tokens_THC[t], blanks_THC[t] = in_token, in_blank
        flat = (each.reshape(len(each), H * C).T for each in (tokens_THC, blanks_THC))
        return np.logaddexp.reduce(begins_THC, 0), Prefixes(tokens_HC.ravel(), *flat)
