"""The commands of this package, each a module that the command line loads when it is asked for."""
