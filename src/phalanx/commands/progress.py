"""How far a command is. The bar itself lives in observe/, where reading data uses it too."""

from phalanx.observe.progress import progress

__all__ = ["progress"]
