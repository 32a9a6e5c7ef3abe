"""The library's own sub-commands of `ernie`."""
