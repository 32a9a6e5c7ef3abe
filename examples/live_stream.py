"""Send a sound file, or the lines of standard input, to a server's session, and write what comes back.

    python examples/live_stream.py ws://localhost:8000/models/heard/stream call.wav
    python examples/live_stream.py ws://localhost:8000/models/german/stream < lines.txt

Sound is sent as fast as it is played.  Text that comes back goes to standard output, and so does sound, as 16-bit PCM.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, WebSocketException

from ernie.audio.wave import pieces, read_wave, to_pcm16
from ernie.errors import UserError

_SECONDS = 0.1  # of sound in a message


async def messages(takes: dict[str, Any], file: str | None) -> AsyncIterator[str | bytes]:
    """Yield what to send to a session."""
    if takes["kind"] == "sound" and file is not None:
        for piece in pieces(read_wave(file, takes["sample_rate"]), _SECONDS):
            yield to_pcm16(piece)
            await asyncio.sleep(_SECONDS)
    elif takes["kind"] == "text":
        while line := await asyncio.to_thread(sys.stdin.readline):
            yield json.dumps({"type": "text", "text": line})
    yield json.dumps({"type": "end"})


async def main(url: str, file: str | None = None) -> int:
    """Send everything and write everything; return the exit status."""
    async with connect(url) as server:
        await server.send(json.dumps({"type": "start"}))
        ready = json.loads(await server.recv())

        async def send() -> None:
            try:
                async for message in messages(ready["takes"], file):
                    await server.send(message)
            except UserError:  # a file that cannot be read
                await server.close()
                raise

        if ready["type"] != "ready":
            sys.exit(ready["message"])
        sending = asyncio.ensure_future(send())
        async for message in server:
            if isinstance(message, bytes):
                sys.stdout.buffer.write(message)
                sys.stdout.buffer.flush()
                continue
            found = json.loads(message)
            if found["type"] == "output":
                print(found["text"], end="", flush=True)
            elif found["type"] != "done":
                print(f"{found['type']}: {found.get('message', '')}", file=sys.stderr)
                if found["type"] == "error":
                    sending.cancel()
                    return 1
        await sending
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        sys.exit(asyncio.run(main(*sys.argv[1:])))
    except InvalidStatus as error:
        sys.exit(f"error: {error.response.body.decode() or error}")
    except (OSError, UserError, WebSocketException) as error:
        sys.exit(f"error: {error}")
