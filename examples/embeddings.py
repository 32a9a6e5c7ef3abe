"""Find similar sentences: encode each as a vector, and print the nearest other one by cosine similarity.

python examples/embeddings.py [MODEL_FOLDER]
"""

from __future__ import annotations

import numpy as np
from models import any_model

SENTENCES = [
    "Return the sum of a list of numbers.",
    "Add all the values of a sequence and return the result.",
    "Open a file and return a file object.",
    "Close the file and write what is left to the disk.",
    "Send bytes to the socket.",
    "Receive data from the socket of a connection.",
    "Raise an exception if the argument is not a string.",
    "An error is raised when the type of the value is wrong.",
]


def main() -> None:
    """Print each sentence with its nearest neighbor."""
    model = any_model(SENTENCES)
    vectors = model.encode(SENTENCES, normalize=True)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    for sentence, row in zip(SENTENCES, cosines, strict=True):
        print(f"{sentence}\n  {row.max():.3f}  {SENTENCES[row.argmax()]}")


if __name__ == "__main__":
    main()
