"""The commands of the command line, one module per family; imports that cost are inside the commands."""
