"""`python -m server.cli.spark`."""

import sys

from server.cli.spark.main import main

if __name__ == "__main__":
    sys.exit(main())
