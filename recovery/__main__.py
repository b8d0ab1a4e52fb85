"""`python -m recovery`, which is the same as the command `recovery`."""

from recovery.cli.entry import main

if __name__ == "__main__":
    main()
