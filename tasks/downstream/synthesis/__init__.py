"""Speech synthesis in its parts: settings, rows, the teacher of a flow, the loss, and answers."""
