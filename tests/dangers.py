"""Calls that run other people's code or words, where ruff's rules do not look: `make lint`.

    python -m tests.dangers

reads every source of the library, the toy, the recipes, the benchmarks, the docs and the notebooks,
and prints a line for each: the place, and what is dangerous there.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("lens_ref", "toy", "recipes", "benchmarks", "docs", "notebooks", "configs")
ESCAPES = "lens_ref/rlvr/untrusted.py"  # the one place that turns text into HTML

PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
SHELLS = {
    "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn",
    "asyncio.create_subprocess_shell",
}  # fmt: skip
FORBIDDEN = {
    **dict.fromkeys(SHELLS, "a shell"),
    **dict.fromkeys(("eval", "exec", "compile", "__import__"), "code out of text"),
    **dict.fromkeys(
        ("sympy.sympify", "sympy.parse_expr", "sympy.parsing.sympy_parser.parse_expr"),
        "code out of text",
    ),
    **dict.fromkeys(
        tuple(f"yaml.{way}{many}" for way in ("load", "full_load", "unsafe_load")
              for many in ("", "_all")),
        "YAML that makes any object: yaml.safe_load",
    ),
    **dict.fromkeys(("jinja2.Template", "jinja2.Environment"), "a template without a sandbox"),
    **dict.fromkeys(("pandas.read_pickle", "torch.jit.load"), "a pickle"),
    "tempfile.mktemp": "a name that another process may take first",
    "shutil.unpack_archive": "an archive that may write anywhere",
    "ssl._create_unverified_context": "a connection without a certificate",
}  # fmt: skip
NOT_WEIGHTS = ("Tokenizer", "Config", "Processor", "FeatureExtractor")
OWN_MACHINE = re.compile(r"http://(127\.0\.0\.1|localhost)\b")
REMOTE_CODE = re.compile(r"trust_remote_code\W{1,4}true", re.I)
PIPED = re.compile(r"\b(curl|wget)\b[^\n]*\|\s*(ba|z)?sh\b")


def in_python(source: str, file: str = "") -> list[str]:
    """What is dangerous in a Python source, `line: what`."""
    tree = ast.parse(source)
    names = dict(_imports(tree))
    found = []
    for node in ast.walk(tree):
        for rule in RULES:
            if what := rule(node, names, file):
                found.append(f"{getattr(node, 'lineno', 1)}: {what}")
    return found


def in_text(source: str) -> list[str]:
    """The same for YAML files and shell scripts."""
    found = []
    for number, line in enumerate(source.splitlines(), start=1):
        if REMOTE_CODE.search(line):
            found.append(f"{number}: runs code that comes with a model: trust_remote_code")
        if PIPED.search(line):
            found.append(f"{number}: runs what it downloads")
        if "http://" in OWN_MACHINE.sub("", line):
            found.append(f"{number}: an address without TLS")
    return found


def in_notebook(source: str) -> list[str]:
    """The same for the code cells of a notebook, shell lines (`!`, `%%bash`) too."""
    found = []
    for number, cell in enumerate(json.loads(source)["cells"]):
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).split("\n")
        if any(re.match(r"\s*!|%%(bash|sh|script)|%s?x\b", line) for line in lines):
            found.append(f"cell {number}: a shell")
        kept = "\n".join("" if re.match(r"\s*[!%]", line) else line for line in lines)
        found += [f"cell {number}, {what}" for what in in_python(kept)]
    return found


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Name in this module → what it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.split(".")[0],
                    (alias.name if alias.asname else alias.name.split(".")[0]),
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _called(node: ast.Call, names: dict[str, str]) -> str:
    """The full name of what a call calls."""
    parts, at = [], node.func
    while isinstance(at, ast.Attribute):
        parts.append(at.attr)
        at = at.value
    first = names.get(at.id, at.id) if isinstance(at, ast.Name) else "?"
    return ".".join([first, *reversed(parts)])


def _keyword(node: ast.AST, name: str) -> object:
    """A literal keyword argument; `...` where it is something else, None where there is none."""
    for keyword in getattr(node, "keywords", []):
        if keyword.arg == name:
            is_literal = isinstance(keyword.value, ast.Constant)
            return keyword.value.value if is_literal else ...
    return None


# --- rules: each looks at one node ----------------------------------------------------------------


def _import(node: ast.AST, names: dict[str, str], file: str) -> str | None:
    modules = []
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        modules = [node.module]
        if node.module == "html" and file.startswith("lens_ref") and file != ESCAPES:
            return "HTML is made with as_html of lens_ref.rlvr.untrusted"
    for module in modules:
        if module.split(".")[0] in PICKLES:
            return f"pickles: {module}"
    return None


def _call(node: ast.AST, names: dict[str, str], file: str) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    name = _called(node, names)
    if name in FORBIDDEN:
        return f"{FORBIDDEN[name]}: {name}"
    if name == "torch.load" and _keyword(node, "weights_only") is not True:
        return "a pickle: torch.load without weights_only=True"
    if _keyword(node, "allow_pickle") not in (None, False):
        return "a pickle: allow_pickle"
    if _keyword(node, "shell") not in (None, False):
        return "a shell: shell="
    if _keyword(node, "verify") is False:
        return "a connection without a certificate: verify=False"
    owner, _, method = name.rpartition(".")
    loads = method == "from_pretrained" and not owner.endswith(NOT_WEIGHTS)
    if loads and _keyword(node, "use_safetensors") is not True:
        return "weights that may be a pickle: from_pretrained without use_safetensors=True"
    if method in ("extract", "extractall") and _keyword(node, "filter") != "data":
        return "an archive that may write anywhere: filter='data'"
    if method in ("eval", "query") and file.startswith("lens_ref") and node.args:
        return f"code out of text: .{method}"
    return None


def _remote_code(node: ast.AST, names: dict[str, str], file: str) -> str | None:
    what = "runs code that comes with a model or data set: trust_remote_code"
    if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
        return None if getattr(node.value, "value", ...) is False else what
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if getattr(key, "value", None) == "trust_remote_code":
                return None if getattr(value, "value", ...) is False else what
    return None


def _address(node: ast.AST, names: dict[str, str], file: str) -> str | None:
    text = node.value if isinstance(node, ast.Constant) else None
    if isinstance(text, str) and "http://" in OWN_MACHINE.sub("", text):
        return "an address without TLS"
    return None


def _assertion(node: ast.AST, names: dict[str, str], file: str) -> str | None:
    """In the library an assert may only tell mypy a type: `python -O` takes it away."""
    if not isinstance(node, ast.Assert) or not file.startswith("lens_ref"):
        return None
    test = node.test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        return None
    if isinstance(test, ast.Call) and getattr(test.func, "id", "") == "isinstance":
        return None
    return "an assert that checks more than a type: python -O takes it away"


RULES: tuple[Callable[[ast.AST, dict[str, str], str], str | None], ...] = (
    _import, _call, _remote_code, _address, _assertion,
)  # fmt: skip


def files() -> Iterator[Path]:
    """Everything that is looked at."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in READERS and ".ipynb_checkpoints" not in path.parts:
                yield path


READERS: dict[str, Callable[[str], list[str]]] = {
    ".ipynb": in_notebook,
    ".yaml": in_text,
    ".yml": in_text,
    ".sh": in_text,
    ".py": in_python,
}


def look(path: Path) -> list[str]:
    """What is dangerous in a file of the repository, a line each."""
    name = path.relative_to(ROOT).as_posix()
    source = path.read_text(encoding="utf-8")
    found = in_python(source, name) if path.suffix == ".py" else READERS[path.suffix](source)
    return [f"{name}:{what}" for what in found]


def main() -> int:
    """Returns 1 where anything was found."""
    found = [line for path in files() for line in look(path)]
    print("\n".join(found) if found else "no dangerous calls")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
