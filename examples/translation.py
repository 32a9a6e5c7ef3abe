"""Translate while the words arrive: the output follows the input, and is never revised.

    echo "ein roter Apfel" | python examples/translation.py RUN

RUN is the folder of a finished run of the kind `translate`.
"""

from __future__ import annotations

import sys

import inference
from ernie.decode.stream import Stream


def main() -> None:
    """Translate standard input word by word."""
    translator = inference.load(sys.argv[1])
    if not isinstance(translator, inference.TextTranslator):
        sys.exit(f"{sys.argv[1]}: its model is asked to {translator.name}; expected one of the kind translate")
    for line in sys.stdin:
        stream = Stream(translator)
        for word in line.split():
            print(f"{word:<15} {stream.push(word)}")
        print(f"{'':<15} {stream.finish()}")


if __name__ == "__main__":
    main()
