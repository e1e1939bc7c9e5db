"""`python -m phalanx.migrate > docs/migrate.md`."""

import sys

from phalanx.migrate.document import document

sys.stdout.write(document())
