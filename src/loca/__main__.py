"""`python -m loca`, the same as the command `loca`."""

from loca.cli.main import run

if __name__ == "__main__":
    run()
