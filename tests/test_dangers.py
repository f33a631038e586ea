"""Nothing dangerous: the static check finds what it is there to find; models, checkpoints and
tokenizers from elsewhere run no code; texts from elsewhere act nowhere; no secret is written down.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported: a test never downloads

from lens_ref import evaluate, report, train
from lens_ref.evaluating import counts, policies
from lens_ref.rlvr import checkpoint, collect, report_figures
from lens_ref.rlvr.config import ModelConfig, PromptConfig
from lens_ref.rlvr.console import PlainConsole
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.logs import Table
from lens_ref.rlvr.policy import load_policy
from lens_ref.rlvr.prompts import encode_prompt
from lens_ref.rlvr.report_data import read_runs
from lens_ref.rlvr.report_samples import samples
from lens_ref.rlvr.run_report import write_report
from lens_ref.rlvr.untrusted import (
    as_html,
    from_cell,
    one_line,
    printable,
    redacted,
    secret_in,
    show_traceback,
    to_cell,
)
from lens_ref.tiny import study
from tests import audit, dangers, hostile
from tests.rlvr.helpers import CPU, save_model, toy_tokenizer

ROOT = Path(__file__).resolve().parent.parent
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

# --- the static check -----------------------------------------------------------------------------


def test_the_repository_names_nothing_dangerous() -> None:
    looked_at = list(dangers.files())
    assert {path.suffix for path in looked_at} == {".py", ".ipynb", ".yaml", ".sh"}
    assert [line for path in looked_at for line in dangers.look(path)] == []


@pytest.mark.parametrize(
    "snippet",
    [
        "import pickle",
        "from cloudpickle import loads",
        "import joblib as j",
        "import torch\ntorch.load(path)",
        "from torch import load as l\nl(path, weights_only=False)",
        "import torch\ntorch.load(path, weights_only=flag)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import pandas as pd\npd.read_pickle(path)",
        "import subprocess\nsubprocess.run(text, shell=True)",
        "import subprocess as s\ns.getoutput(text)",
        "import os\nos.system(text)",
        "from os import popen\npopen(text)",
        "eval(text)",
        "exec(text)",
        "compile(text, 'name', 'exec')",
        "__import__(text)",
        "import sympy\nsympy.sympify(text)",
        "import yaml\nyaml.load(text, yaml.SafeLoader)",
        "from yaml import unsafe_load\nunsafe_load(text)",
        "import jinja2\njinja2.Template(text)",
        "import tempfile\ntempfile.mktemp()",
        "import shutil\nshutil.unpack_archive(path)",
        "archive.extractall(folder)",
        "import requests\nrequests.get(address, verify=False)",
        "get('http://example.invalid/data')",
        "from transformers import AutoModel\nAutoModel.from_pretrained(path)",
        "from peft import PeftModel\nPeftModel.from_pretrained(model, path, use_safetensors=flag)",
        "AutoTokenizer.from_pretrained(path, trust_remote_code=True)",
        "load_dataset(name, trust_remote_code=flag)",
        "options = {'trust_remote_code': True}",
        # named, not called
        "import torch\ng = torch.load",
        "e = eval",
        "run = [exec]",
        "def f(text, make=compile): ...",
        "from os import system as s",
        "from os import path, popen",
        "map(eval, texts)",
        "from functools import partial\nimport torch\npartial(torch.load, weights_only=False)",
        "from transformers import AutoModel\nload = AutoModel.from_pretrained",
        "unpack = archive.extractall",
        # called by another name
        "import torch\ng = torch.load\ng(path)",
        "import torch\nt = torch\nt.load(path)",
        "import torch as a\nb = c = a\nd: Any = c\nd.load(path)",
        "d = c\nc = a\nimport os as a\nd.system(text)",
        "import os, sys\na, b = sys, os\nb.system(text)",
        "import os\nclass A:\n  def f(self):\n    self.o = os\n    self.o.system(text)",
        "import os\nif y := os:\n  y.system(text)",
        "e = eval\ne(text)",
        "from os import system as s\ns(text)",
        "import subprocess as s\nrun = s.run\nrun(text, shell=True)",
        "from subprocess import Popen as P\nP(text, shell=flag)",
        "import subprocess\noptions = {'shell': True}",
        "options = dict(allow_pickle=True)",
        # looked up
        "import os\ngetattr(os, 'system')",
        "import os\ngetattr(os, 'system', None)(text)",
        "import os\ngetattr(os, name)(text)",
        "import os\ng = getattr\ng(os, 'sys' + 'tem')",
        "import torch\ngetattr(torch, 'load')(path)",
        "import builtins\nbuiltins.eval(text)",
        "import os\nvars(os)['system'](text)",
        "import os\nos.__dict__['system'](text)",
        "import sys\nsys.modules['os'].system(text)",
        "globals()['eval'](text)",
        "__builtins__['exec'](text)",
        "import importlib\nimportlib.import_module('pickle')",
        "from importlib import import_module as i\ni('os').system(text)",
        "from importlib import import_module as i\no = i('os')\no.system(text)",
        "import shutil\nshutil.os.system(text)",
        "from shutil import os as o\no.popen(text)",
        "__import__('os').system(text)",
        "f = __import__",
        "from os import *",
        # their kin
        "import torch\ntorch.hub.load(name, 'model')",
        "from torch import hub\nhub.load_state_dict_from_url(address)",
        "import torch\ntorch.serialization.load(path)",
        "import os\nos.execvp(file, arguments)",
        "import os\nos.spawnl(os.P_WAIT, file)",
        "import os\nos.posix_spawn(file, arguments, os.environ)",
        "import os\nos.popen(text)",
        "import shelve",
        "import marshal",
        "from dill import loads",
        "import torch\ntorch.serialization.pickle.loads(data)",
        "import runpy\nrunpy.run_path(path)",
        "import yaml\nloader = yaml.UnsafeLoader",
    ],
)
def test_a_danger_is_found(snippet: str) -> None:
    """Where it is named first, and in the last line of each of these at the latest."""
    found = dangers.in_python(f"x = 1\n{snippet}\n")
    assert found
    assert found[-1].startswith(f"{1 + len(snippet.splitlines())}: ")


@pytest.mark.parametrize(
    "snippet",
    [
        "import torch\ntorch.load(path, weights_only=True)",
        "import numpy as np\nnp.load(path)\nnp.load(path, allow_pickle=False)",
        "import subprocess\nsubprocess.run(['git', 'log'], check=True)",
        "model.eval()",
        "import yaml\nyaml.safe_load(text)",
        "archive.extractall(folder, filter='data')",
        "get('https://example.invalid')\nget('http://127.0.0.1:80/')",
        "AutoModel.from_pretrained(path, use_safetensors=True, trust_remote_code=False)",
        "AutoTokenizer.from_pretrained(path)\nAutoConfig.from_pretrained(path)",
        "import re\nre.compile(pattern)",
        "from torch import load as l\nl(path, weights_only=True)",
        "from lens_ref.evaluating.counts import load as load\nload(path)",
        "config.prompt.system, platform.system(), metrics['system']",
        "config.compile = True\nconfig.eval.every",
        "getattr(torch, name)\ngetattr(os.path, 'join')",
        "import importlib\nimportlib.import_module('wandb')\nimportlib.import_module(name)",
        "node = first\nwhile node:\n  node = node.next",
        "from transformers import AutoTokenizer as A\nload = A.from_pretrained\nload(path)",
    ],
)
def test_a_harmless_name_is_not(snippet: str) -> None:
    assert dangers.in_python(snippet) == []


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("assert x is not None", 0),
        ("assert isinstance(x, int)", 0),
        ("assert x > 0", 1),
        ("assert set(a) == set(b)", 1),
        ("assert is_right(x)", 1),
        ("assert not unexpected", 1),
    ],
)
def test_asserts_of_the_library_tell_types_alone(statement: str, found: int) -> None:
    assert len(dangers.in_python(statement, "lens_ref/file.py")) == found
    assert dangers.in_python(statement, "toy/file.py") == []


def test_html_is_made_in_one_place() -> None:
    assert len(dangers.in_python("from html import escape", "lens_ref/page.py")) == 1
    assert dangers.in_python("from html import escape", dangers.ESCAPES) == []
    assert len(dangers.in_python("table.query(text)", "lens_ref/page.py")) == 1


def test_notebooks_scripts_and_settings_are_looked_at_too() -> None:
    cells = ["!curl x", "x = 1", "%%bash\nls", "%matplotlib inline\neval(text)"]
    cells = [{"cell_type": "code", "source": [cell]} for cell in cells]
    cells.append({"cell_type": "markdown", "source": ["!eval(text)"]})
    found = dangers.in_notebook(json.dumps({"cells": cells}))
    assert [line.split(":")[0] for line in found] == ["cell 0", "cell 2", "cell 3, 2"]
    cells = [{"cell_type": "code", "source": [c]} for c in ("import os as o", "o.system(text)")]
    assert dangers.in_notebook(json.dumps({"cells": cells})) == ["cell 1, 1: a shell: os.system"]
    for line in ("trust_remote_code: true", "+model.trust_remote_code=True", "curl x | sh",
                 "source: http://example.invalid"):  # fmt: skip
        assert len(dangers.in_text(f"a: 1\n{line}\n")) == 1
    assert dangers.in_text("trust_remote_code: false\ncurl -O https://example.invalid\n") == []


def test_every_silenced_rule_is_explained() -> None:
    """`noqa: S…` in the sources, by file, are those that SECURITY.md gives a reason for."""
    silenced = set()
    for folder in ("lens_ref", "toy", "recipes", "benchmarks", "docs", "notebooks"):
        for path in (ROOT / folder).rglob("*.py"):
            for rule in re.findall(r"noqa:[^#\n]*\b(S\d{3})", path.read_text(encoding="utf-8")):
                silenced.add((path.relative_to(ROOT).as_posix(), rule))
    assert set(re.findall(r"^\| `([\w/.]+\.py)` \| (S\d{3}) \|", SECURITY, re.M)) == silenced


# --- code that comes with a model -----------------------------------------------------------------


class Canary:
    """Unpickled, it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture
def folder(llama: Path, tmp_path: Path) -> Path:
    """A model folder to spoil."""
    return shutil.copytree(llama, tmp_path / "model")


def _pickle(path: Path, canary: Path) -> None:
    with path.open("wb") as file:
        pickle.dump({"weight": Canary(canary)}, file)


def test_the_canary_sings(tmp_path: Path, canary: Path) -> None:
    _pickle(tmp_path / "file", canary)
    with (tmp_path / "file").open("rb") as file:
        pickle.load(file)
    assert canary.exists()


def _refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert train.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("decoy", [False, True])
def test_a_model_whose_weights_are_a_pickle_is_refused(
    folder: Path, canary: Path, decoy: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where another safetensors file is beside it."""
    weights = folder / "model.safetensors"
    weights.rename(folder / "other.safetensors") if decoy else weights.unlink()
    _pickle(folder / "pytorch_model.bin", canary)
    arguments = ["--model", str(folder), "--steps", "1", "--out", str(folder / "runs")]
    assert "safetensors" in _refused([*arguments, "--set", "prompt.template={problem}"], capsys)
    assert not canary.exists()


def test_pickles_beside_the_weights_are_not_read(folder: Path, canary: Path) -> None:
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "tokenizer.pkl"):
        _pickle(folder / name, canary)
    load_policy(ModelConfig(path=str(folder), lora=None), CPU, 0)
    assert not canary.exists()


def test_an_adapter_that_is_a_pickle_is_refused(folder: Path, canary: Path) -> None:
    adapter = {
        "peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"],
        "base_model_name_or_path": str(folder),
    }  # fmt: skip
    weights = folder.parent / "adapter"
    weights.mkdir()
    (weights / "adapter_config.json").write_text(json.dumps(adapter))
    _pickle(weights / "adapter_model.bin", canary)
    (target,) = policies.find(str(weights), policies.Options())
    with pytest.raises(UserError, match="cannot read the adapter"):
        policies.load_target(target, CPU)
    assert not canary.exists()


def _remote_code(folder: Path, file: str, canary: Path, **changes: Any) -> None:
    """Let a configuration name code of the folder's own, which leaves a file where it runs."""
    code = f"open({str(canary)!r}, 'w')\nclass Evil:\n    pass\n"
    (folder / "evil.py").write_text(code)
    path = folder / file
    values = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(values | changes))


def test_code_of_a_model_does_not_run(
    folder: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}
    _remote_code(folder, "config.json", canary, auto_map=names)
    load_policy(ModelConfig(path=str(folder), lora=None), CPU, 0)  # of a known kind: ours is used
    _remote_code(folder, "config.json", canary, model_type="evil")
    arguments = ["--model", str(folder), "--steps", "1", "--out", str(folder / "runs")]
    assert "cannot load the model" in _refused(arguments, capsys)
    assert not canary.exists()


def test_code_of_a_tokenizer_does_not_run(folder: Path, canary: Path) -> None:
    names = {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    changes = {"auto_map": names, "tokenizer_class": "Evil"}
    _remote_code(folder, "tokenizer_config.json", canary, **changes)
    with suppress(UserError):  # refused, or read by a class of ours
        load_policy(ModelConfig(path=str(folder), lora=None), CPU, 0)
    assert not canary.exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{{ 1 + 'a' }}",
        "{{ 1 / 0 }}",
        "{% import 'os' as os %}",
        "{% if %}",
        "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    ],
)
def test_a_chat_template_stays_in_its_sandbox(template: str) -> None:
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(UserError, match="chat template refuses"):
        encode_prompt(tokenizer, PromptConfig(template="chat"), "a")


def test_a_checkpoint_with_a_pickle_in_it_is_not_used(tmp_path: Path, canary: Path) -> None:
    step = tmp_path / "checkpoints" / "step-4"
    (step / "policy").mkdir(parents=True)
    (step / "state.json").write_text('{"step": 4}')
    (step / checkpoint.HASHES).write_text(json.dumps(checkpoint._hashes(step)))
    assert checkpoint.latest(step.parent) == step
    _pickle(step / "policy" / "pytorch_model.bin", canary)
    assert checkpoint.latest(step.parent) is None
    assert not canary.exists()


def test_weights_of_another_model_are_refused(llama: Path) -> None:
    policy = load_policy(ModelConfig(path=str(llama), lora=None), CPU, 0)
    weights = {k: v.clone() for k, v in policy.model.state_dict().items()}
    with pytest.raises(UserError, match=r"another model.*strange"):
        checkpoint._load_weights(policy, weights | {"strange": torch.zeros(1)})
    weights.pop("model.norm.weight")
    with pytest.raises(UserError, match=r"another model.*model\.norm\.weight"):
        checkpoint._load_weights(policy, weights)


# --- texts that act where they are shown ----------------------------------------------------------


def test_printable() -> None:
    assert printable("a\x1b[2J\x07\x9b\x00") == r"a\x1b[2J\x07\x9b\x00"
    assert printable("\u202eabc\u2066 \ud800 \u2028") == r"\u202eabc\u2066 \ud800 \u2028"
    assert printable("two\nlines\tand\rmore") == "two\nlines\tand\\rmore"
    assert printable("two\nlines\t", keep="") == r"two\nlines\t"
    assert one_line(" two\nlines\t\x1b ") == r"two lines \x1b"
    plain = "π ≠ α ✓ − 日本語 עברית \U0001f600 é \\x1b"
    assert printable(plain) == plain
    assert as_html("<b title='x\"'>&\x1b") == r"&lt;b title=&#x27;x&quot;&#x27;&gt;&amp;\x1b"


@settings(max_examples=60)
@given(st.text())
def test_nothing_that_acts_stays(text: str) -> None:
    assert not hostile.ACTING.search(printable(text))
    assert printable(printable(text)) == printable(text)
    page = hostile.Page(f"<p>{as_html(text)}</p>")
    assert page.faults == []
    assert page.text == printable(text)


@given(st.from_regex(r"'*[=+\-@\t\r]?[a-z']*", fullmatch=True) | st.text())
def test_a_cell_is_no_formula_and_is_read_back(text: str) -> None:
    assert not str(to_cell(text)).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert from_cell(to_cell(text)) == text


def test_numbers_of_a_table_stay() -> None:
    assert [to_cell(value) for value in (-1.5, -2, None, "q1")] == [-1.5, -2, None, "q1"]


def test_a_table_of_a_run_holds_no_formula(tmp_path: Path) -> None:
    table = Table(tmp_path / "groups.csv", ["step", "question", "confidence"])
    rows = [{"step": 1, "question": f, "confidence": -0.5} for f in hostile.FORMULAS]
    table.append(rows)
    with table.path.open(encoding="utf-8", newline="") as file:
        _, *written = csv.reader(file)
    assert [row[1][0] for row in written] == ["'"] * len(rows)
    assert [row[2] for row in written] == ["-0.5"] * len(rows)
    before = table.path.read_bytes()
    table.cut(1)
    assert table.path.read_bytes() == before
    assert [from_cell(row.value[1]) for row in table.read()] == list(hostile.FORMULAS)


def test_counts_hold_no_formula(tmp_path: Path) -> None:
    rows = [counts.Count(f, None, f, 4, 1, None) for f in hostile.FORMULAS if f == one_line(f)]
    counts.write(tmp_path / "counts.csv", rows[:2])
    counts.append(tmp_path / "counts.csv", rows[2:])
    assert counts.read(tmp_path / "counts.csv") == rows
    with (tmp_path / "counts.csv").open(encoding="utf-8", newline="") as file:
        assert all(row[0].startswith("'") for row in list(csv.reader(file))[1:])


def test_the_console_reads_no_markup_and_passes_no_commands_on() -> None:
    out = io.StringIO()
    console = PlainConsole(soft_wrap=True, file=out, force_terminal=True, width=300)
    for text in hostile.MARKS:
        console.print(text)
    console.print("warning", style="yellow")
    console.print(console.status("[red]loading\x1b[2J").renderable)
    shown = out.getvalue()
    assert "\x1b[33mwarning\x1b[0m" in shown  # its own colours work
    own = re.sub(r"\x1b\[\d*(;\d+)*m", "", shown)
    assert hostile.ACTING.findall(own) == []
    for text in ("[red]rich[/red]", r"\x1b[2J\x1b[H", "[red]loading\\x1b[2J", r"\u202eright"):
        assert text in own


def test_an_error_is_one_printable_line() -> None:
    error = UserError("no question 'a\x1b[2J\nb' in https://ada:lovelace@example.invalid/x")
    assert str(error) == r"no question 'a\x1b[2J\nb' in https://***@example.invalid/x"


def test_the_report_of_a_run_shows_hostile_texts_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_figures, "png", lambda figure: b"PNG")
    texts = hostile.texts(2 * hostile.TEXTS_OF_A_RUN, seed=3)
    parent = tmp_path / "a\"><script>'x"
    for seed in (0, 1):
        part = texts[hostile.TEXTS_OF_A_RUN * seed :][: hostile.TEXTS_OF_A_RUN]
        hostile.make_run(parent / f"<img src=x onerror=1>-seed{seed}", part, seed=seed)
    page = hostile.Page(write_report(parent).read_text(encoding="utf-8"))
    assert page.faults == []
    seen = " ".join(page.text.split())
    forms = [{one_line(text), one_line(printable(text))} for text in texts]  # an id, an answer
    assert [both for both in forms if not any(form in seen for form in both)] == []
    assert "<img src=x onerror=1>, seed 1" in seen


def test_the_words_of_a_figure_are_no_formulas() -> None:
    figure, (axes,) = report_figures.frame()
    axes.set_title("$\\frac{$ \x1b[2J")  # matplotlib fails on such a formula
    axes.set_yticks([0, 1], labels=["$\\frac{$", "$x$"])
    assert report_figures.png(figure)[:4] == b"\x89PNG"
    assert axes.get_title() == r"$\frac{$ \x1b[2J"


@pytest.mark.parametrize(
    "change",
    [
        {"group": "<script>"}, {"reward": "<b>"}, {"step": None}, {"confidence": []},
        {"response": 7},
    ],
)  # fmt: skip
def test_a_sample_of_another_kind_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    run = hostile.make_run(tmp_path / "runs/grpo-seed0", hostile.texts(18))
    lines = (run / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    spoilt = json.dumps(json.loads(lines[1]) | change)
    (run / "samples.jsonl").write_text("\n".join([lines[0], spoilt]) + "\n")
    with pytest.raises(UserError, match=r"samples\.jsonl is damaged: line 2"):
        samples(read_runs(run.parent))


def test_the_report_of_a_reproduction_shows_hostile_texts_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report_figures, "png", lambda figure: b"PNG")
    texts = ["=1+1\x1b[2J<script>\\input{x}", *hostile.texts(17)]
    for method in ("grpo", "lens:preset=<b>"):
        hostile.make_run(tmp_path / "[red]runs" / method[:4], texts, method)
    out = tmp_path / "out"
    assert report.main([str(tmp_path / "[red]runs"), "--out", str(out)]) == 0
    assert hostile.Page((out / "report.html").read_text(encoding="utf-8")).faults == []
    latex = (out / "tables.tex").read_text(encoding="utf-8")
    assert r"\textbackslash{}input\{x\}" in latex
    assert r"\input" not in latex
    ours = (out / "our_runs.csv").read_text(encoding="utf-8")
    assert not re.search(r'^"?[=+@]', ours, re.M)
    assert hostile.ACTING.findall(capsys.readouterr().out) == []


def test_the_evaluation_shows_hostile_texts_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [one_line(text) for text in [*hostile.MARKS, *hostile.FORMULAS, "[bold]x[/bold]"]]
    rows = [counts.Count(f"{i}", None, f"{name}\x1b[2J", 4, 1, 0) for i, name in enumerate(names)]
    counts.write(tmp_path / "counts.csv", rows)  # as another program may have written them
    arguments = ["--from", str(tmp_path / "counts.csv"), "--out", str(tmp_path / "out")]
    assert evaluate.main(arguments) == 0
    for text in (capsys.readouterr().out, (tmp_path / "out/table.txt").read_text()):
        assert hostile.ACTING.findall(text) == []
        assert "[bold]x[/bold]\\x1b[2J" in text


# --- secrets --------------------------------------------------------------------------------------

SECRETS = {
    "HF_TOKEN": "hf_canaryCanaryCanary0123456789ab",
    "WANDB_API_KEY": "0123456789canary0123456789canary01234567",
    "AWS_SECRET_ACCESS_KEY": "wJalr/canary+EXAMPLEKEY",
    "MY_PASSWORD": "canary password",
}


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--set a=hf_canaryCanaryCanary0123456789ab", "--set a=***"),
        ("x 'canary password' y", "x '***' y"),
        ("wJalr/canary+EXAMPLEKEY,", "***,"),
        ("https://user:pa:ss@host/file@v1", "https://***@host/file@v1"),
        ("no data file https:/user:pass@host/q.jsonl", "no data file https:/***@host/q.jsonl"),
        ("s3://AKIA@bucket", "s3://***@bucket"),
        ("hf_abcdefghijklmnopqrstuvwxyz012345", "***"),
        ("https://host/q?token=abc&x=1&X-Amz-Signature=1f", "https://host/q?token=***&x=1&"
         "X-Amz-Signature=***"),
        ("python -m lens_ref.train --set data.train=/data/q@1.jsonl optimizer.lr=1e-5", None),
        ("tokens=16 hf_home sk-learn", None),
    ],
)  # fmt: skip
def test_redacted(secrets: None, text: str, expected: str | None) -> None:
    assert redacted(text) == (text if expected is None else expected)


def test_a_secret_is_found_in_settings(secrets: None) -> None:
    config = {"prompt": {"system": f"be {SECRETS['MY_PASSWORD']}"}, "methods": ["grpo"], "seed": 1}
    assert secret_in(config) == (
        "prompt.system", "the value of the environment variable MY_PASSWORD"
    )  # fmt: skip
    assert secret_in({"a": ["https://u:p@host"]}) == ("a", "a password or a token")
    assert secret_in({"a": ["x@y", "a:b"], "b": {"c": 1.5}}) is None


TINY = [
    "--method", "lens", "--steps", "2", "--set", "data.train_questions=16",
    "data.test_questions=4", "rollout.questions=8", "rollout.responses=2",
    "rollout.max_new_tokens=8", "loss.updates_per_rollout=2", "eval.n=1", "eval.every=2",
    "checkpoint.every=2", "verifier.workers=1",
]  # fmt: skip


def _written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_run_writes_no_secret_down(
    secrets: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Neither of the environment, nor one that was given on the command line."""
    monkeypatch.setattr(report_figures, "png", lambda figure: b"PNG")
    address = "https://ada:lovelace@host"
    arguments = [*TINY, "--out", str(tmp_path / "runs")]
    given = [*arguments, SECRETS["HF_TOKEN"], address]
    monkeypatch.setattr("sys.argv", ["lens_ref.train", *given])
    assert train.main(arguments) == 0
    seen = _written(tmp_path) + "".join(capfd.readouterr()).encode()
    for secret in (*SECRETS.values(), "lovelace"):
        assert secret.encode() not in seen
    (manifest,) = (tmp_path / "runs").rglob("manifest.json")
    command = json.loads(manifest.read_text())["command"]
    assert command.startswith("python -m lens_ref.train --method lens --steps 2")
    assert command.endswith("'***' 'https://***@host'")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", f"prompt.template={{problem}} {SECRETS['MY_PASSWORD']}"],
        ["--set", f"prompt.system={SECRETS['WANDB_API_KEY']}"],
        ["--data", "https://ada:lovelace@host/q.jsonl"],
        ["--data", "https://ada:lovelace@host/q"],
        ["--model", "https://ada:lovelace@host/q"],
        ["--wandb", SECRETS["HF_TOKEN"]],
        ["--name", SECRETS["HF_TOKEN"]],
        ["--name", f"run-{SECRETS['MY_PASSWORD']}"],
        ["--device", SECRETS["MY_PASSWORD"]],
        ["--set", f"{SECRETS['HF_TOKEN']}=1"],
        [SECRETS["HF_TOKEN"]],
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_a_secret_among_the_arguments_is_refused_and_not_repeated(
    secrets: None,
    tmp_path: Path,
    arguments: list[str],
    debug: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace())  # as if it were installed
    command = [*arguments, "--out", str(tmp_path / "runs"), *(["--debug"] if debug else [])]
    status: object = 2
    try:
        status = train.main(command)
    except SystemExit as refused:
        status = refused.code
    except UserError as error:  # only with --debug
        show_traceback(type(error), error, error.__traceback__)
        status = 2 if debug else "a traceback"
    shown = "".join(capsys.readouterr())
    assert status == 2
    assert re.search(r"\w*[eE]rror: ", shown)
    for secret in (*SECRETS.values(), "lovelace"):
        assert secret not in shown
        assert secret.encode() not in _written(tmp_path)


def test_neither_an_evaluation_nor_a_folders_name_writes_a_secret_down(
    secrets: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = ["tiny", "--questions", "2", "--n", "1", "--out", str(tmp_path / "out")]
    arguments += ["--set", "verifier.workers=1"]
    monkeypatch.setattr("sys.argv", ["lens_ref.evaluate", *arguments, SECRETS["HF_TOKEN"]])
    assert evaluate.main(arguments) == 0
    seen = _written(tmp_path) + "".join(capfd.readouterr()).encode()
    assert all(secret.encode() not in seen for secret in SECRETS.values())
    named = SECRETS["HF_TOKEN"]
    assert evaluate.main([*arguments, "--out", str(tmp_path / named)]) == 2
    (tmp_path / "empty").mkdir()
    assert evaluate.main(["overlap", "tiny", "tiny", "--out", str(tmp_path / named)]) == 2
    assert report.main([str(tmp_path / "empty"), "--out", str(tmp_path / named)]) == 2
    assert collect.main([str(tmp_path / "empty"), "--out", str(tmp_path / named)]) == 2
    assert train.main([*TINY, "--out", str(tmp_path / named)]) == 2
    with suppress(SystemExit):
        study.main(["--out", str(tmp_path / named), "--seeds", "1"])
    assert capfd.readouterr().err.count("--out holds") == 5
    assert not (tmp_path / named).exists()
    refused = [*arguments[:-1], f"prompt.system={SECRETS['MY_PASSWORD']}", "--out", str(tmp_path)]
    assert evaluate.main(refused) == 2
    assert SECRETS["MY_PASSWORD"].encode() not in _written(tmp_path)


def test_settings_are_yaml_that_makes_no_objects(
    tmp_path: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = f"!!python/object/apply:os.mkdir ['{canary}']"
    with pytest.raises(FileNotFoundError):
        canary.stat()
    (tmp_path / "config.yaml").write_text(f"seed: {evil}\n")
    assert train.main(["--config", str(tmp_path / "config.yaml")]) == 2
    assert train.main(["--set", f"seed={evil}"]) == 2
    assert train.main(["--method", f"lens:preset={evil}"]) == 2
    assert not canary.exists()
    assert capsys.readouterr().err.count("\n") == 3
    yaml.unsafe_load(evil)  # it would have
    assert canary.exists()


# --- the audit ------------------------------------------------------------------------------------

OK = {"name": "good", "version": "1", "vulns": []}
BAD = {"name": "bad", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "odd", "skip_reason": "not on PyPI"}


@pytest.mark.parametrize(
    ("answer", "status", "line"),
    [
        ({"dependencies": [OK]}, 0, "1 packages audited, 0 with known vulnerabilities"),
        ({"dependencies": [OK, BAD]}, 1, "bad 2: PYSEC-1 (mended in: 3)"),
        ({"dependencies": [OK, UNKNOWN]}, 3, "1 packages NOT AUDITED (odd): not on PyPI"),
        ({"dependencies": [BAD, UNKNOWN]}, 1, "1 packages NOT AUDITED (odd): not on PyPI"),
        ({"dependencies": [UNKNOWN] * 4}, 3, "4 packages NOT AUDITED (odd, odd, odd …): not on"),
        ({"dependencies": []}, 3, "0 packages audited"),
        ({}, 3, "0 packages audited"),
        (None, 3, "NOT AUDITED, the advisory database could not be asked: no network"),
    ],
)
def test_an_audit_that_was_not_made_is_never_clean(
    answer: dict[str, Any] | None, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.audit([ROOT / "requirements.txt"], lambda path: (answer, "no network")) == status
    shown = capsys.readouterr().out
    assert shown.startswith("requirements.txt: ")
    assert line in shown


def test_one_file_that_was_not_audited_is_enough() -> None:
    answers = iter([({"dependencies": [OK]}, ""), (None, "no network")])
    assert audit.audit(audit.files()[:2], lambda path: next(answers)) == 3


def test_every_file_of_pins_is_audited() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in audit.files()}
    assert names >= {"requirements.txt", "requirements-trl.txt", "docs/requirements.txt"}
    for path in audit.files():
        lines = path.read_text(encoding="utf-8").splitlines()
        pins = [line for line in lines if line and not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.\[\]-]+==[\w.+]+(; .*)?", pin) for pin in pins), path
