"""`import lens_ref` brings torch and the standard library, nothing else, and leaves CUDA alone."""

from __future__ import annotations

import json
import subprocess
import sys

import lens_ref

SCRIPT = """
import json, sys
import torch
before = {name.split(".")[0] for name in sys.modules}
import lens_ref
after = {name.split(".")[0] for name in sys.modules}
print(json.dumps({
    "new": sorted(after - before - set(sys.stdlib_module_names)),
    "cuda": torch.cuda.is_initialized(),
    "heavy": sorted(after & {"transformers", "vllm", "peft", "matplotlib", "math_verify"}),
}))
"""


def test_import_is_light() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found == {"new": ["lens_ref"], "cuda": False, "heavy": []}


def test_every_public_name_is_importable_and_described() -> None:
    for name in lens_ref.__all__:
        thing = getattr(lens_ref, name)
        assert thing.__doc__, name
