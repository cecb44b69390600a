"""What a GPU would do, on a device that is pretended, in a process of its own.

The device changes torch for good (`pretend_device.install`).
"""

import subprocess
import sys
from pathlib import Path


def test_on_a_device_that_is_not_the_cpu():
    tests = Path(__file__).parent / "on_pretend_device.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tests.parent.parent)
    assert found.returncode == 0, found.stdout[-6000:]
