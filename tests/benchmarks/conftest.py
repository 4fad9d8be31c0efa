"""The benchmarks are programs beside the package: let their tests import them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
