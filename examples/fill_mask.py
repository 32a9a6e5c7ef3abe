"""Predict the words at [MASK] with the masked-token head from pretraining.

python examples/fill_mask.py [MODEL_FOLDER]
"""

from __future__ import annotations

from models import any_model

TEXTS = [
    "Return the [MASK] of a list of numbers.",
    "Open a [MASK] and read its lines.",
    "Raise an [MASK] if the [MASK] is not a string.",
]


def main() -> None:
    """Print the five most likely words for each mask."""
    model = any_model([text.replace("[MASK]", "sum file error value") for text in TEXTS])
    for text in TEXTS:
        for candidates in model.fill_mask(text, top=5):
            print(text)
            for candidate in candidates:
                print(f"  {candidate.probability:6.1%}  {candidate.text}")


if __name__ == "__main__":
    main()
