"""The commands that call a loaded model."""
