"""`python -m server.tools.spark`."""

import sys

from server.tools.spark.main import main

if __name__ == "__main__":
    sys.exit(main())
