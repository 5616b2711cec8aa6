"""The command `loca`, one file per group of commands."""
