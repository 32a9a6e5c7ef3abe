"""Small language models in KenLM's binary format, as its tool build_binary (0.3.0) wrote them from ARPA files.

`NgramModel.learn` made the ARPA files: of `LEARNED` and order 2 for "probing", "trie" and "unlisted" (with -v), and of
`NEVER_BLUE` and order 2 for "never-blue".
"""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

LEARNED = [["new", "york"], ["new", "art"], ["no", "artist"], ["no", "new", "york"]]
NEVER_BLUE = [["never"], ["red", "green"]] * 50
_FILES = {
    "probing": """
eNrLzU0sUMjJVcgoKSmw0tfPzkhNTMtMzUnRS87P1U/OT0lVSMsvyk0sUShLLSrOzM9TMOViQIAGeyCxnxFI/AcCkAgjVIYJTB6wRxbjgNKc
DKgAJF5Qp7jXsq0UrO/PUqPZqjeNt7AB2Xts61ZqK6/qZWcgHbjvsuxL5c3dwgxkL/ZdH1bctfMsC5oarpzvH2uLH2SD3OimV8aySvVIISuQ
3egwcz/Ig8tLf9uBaAaGY4f+eZvvP5dZb59YfmUfjJ65VMeeKUAcRRykDmY+t1QdQ6vKAiY3i/37loZVVJka31zO801pv6qmJcum1bwWpYdf
71th4nrQji9z6dwnF/f1CNzyKTvG32bjsmXfzIvv9lnPOjaXzYht3969lQaPLinui7Oo2LtsxuS5mir6S0HinQwvwr2Weu2a21C3j9TwsSnN
y7ZjsNEvBhJAnFhUAsKZxSUMeanlDHn5DJX5RdkMAHiejgQ=
""",
    "trie": """
eNrLzU0sUMjJVcgoKSmw0tfPzkhNTMtMzUnRS87P1U/OT0lVSMsvyk0sUShLLSrOzM9TMOViQIAGeyCxnxFI/AcCkAgjVIYJTB6wZ4KKgTAH
VI4TyQR2KF1Qp7jXsq2UgSvn+8fa4gfZbnplLKtUjxTusa1bqa28qvfPUqPZqjeNt7jvsuxL5c3dsth3fVhx186zMHMaHWbuBzkIYfKxQ/+8
zffDeMtLf+9Dlp+5VGc/U4D4fmYo/1xm/X6QelYkfmL5lX1saHx2ND4HAyrgZMAOnrQ2XzdmlmS+L3lC4kdTe8e18LlPLu57yfLlc6vgufX5
Em9c60LN97xjRtZjU5qXbcdgUwzE+kAiL7WcoTK/KJshL58hsagEhDOLSxgAF4x0Lw==
""",
    "unlisted": """
eNrLzU0sUMjJVcgoKSmw0tfPzkhNTMtMzUnRS87P1U/OT0lVSMsvyk0sUShLLSrOzM9TMOViQIAGeyCxnxFI/AcCkAgjVIYJTB6wZ4LyQeIc
UDYnkgnsULqgTnGvZVspA1fO94+1xQ+y3fTKWFapHincY1u3Ult5Ve+fpUazVW8ab3HfZdmXypu7ZbHv+rDirp1nYeY0OszcD3IQwuRjh/55
m++H8ZaX/t6HLD9zqc5+pgDx/cxQ/rnM+v0g9axI/MTyK/vY0PjsaHwOBlTAyYAdPGltvm7MLMl8X/KExI+m9o5r4XOfXNz3kuXL51bBc+vz
Jd641oWa73nHjKwHALYRaJM=
""",
    "never-blue": """
eNrLzU0sUMjJVcgoKSmw0tfPzkhNTMtMzUnRS87P1U/OT0lVSMsvyk0sUShLLSrOzM9TMOViQIAGeyCxnxFI/AcCkAgjVIYJTB6wZ4KKgTAb
VI4VyQQYu6BOca9lWynDYf5lqyP2LvHmyvn+sbb4QfbGdlvPJ897Z1/e0Bn/Yq3uXZi+Ty5N+0EOQJh07BDIQhhPRM1xPzL/T8PNfSD1jGjy
zGh8FgZUwMqAHcz5HX1bU9Q17XqIyMzYCFXz2sSpd74wIquwKc3LtmOwKbZjSC9KTc1jsNEHMotSUxjyUoFhyQAAneJQGA==
""",
}


def write_kenlm(name: str, path: Path) -> Path:
    """Write one of the files, and return its path."""
    path.write_bytes(zlib.decompress(base64.b64decode(_FILES[name])))
    return path
