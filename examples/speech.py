"""Transcribe a sound file as if it came from a microphone, a tenth of a second at a time.

    python examples/speech.py RUN SOUND

RUN is the folder of a finished run of the kind `transcribe`, with `encoder: chunks`.
"""

from __future__ import annotations

import sys

import inference
from ernie.audio.wave import pieces, read_wave
from ernie.decode.stream import Stream


def main() -> None:
    """Print what is said, with the second at which it was certain."""
    recognizer = inference.load(sys.argv[1])
    if not isinstance(recognizer, inference.SpeechRecognizer):
        sys.exit(f"{sys.argv[1]}: its model is asked to {recognizer.name}; expected one of the kind transcribe")
    stream, seconds = Stream(recognizer), 0.0
    for piece in pieces(read_wave(sys.argv[2], recognizer.sample_rate), 0.1):
        seconds += len(piece) / recognizer.sample_rate
        if words := stream.push(piece):
            print(f"{seconds:6.1f} s  {words}")
    print(f"   end    {stream.finish()}")


if __name__ == "__main__":
    main()
