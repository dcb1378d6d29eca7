"""The settings of a gate: from a file and the command line to the options of the data path."""
