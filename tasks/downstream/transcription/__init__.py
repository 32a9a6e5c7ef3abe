"""Transcription of speech in its parts: settings, rows, the loss, and answers."""
