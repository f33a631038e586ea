"""Names that run other people's code or words, where ruff's rules do not look: `make lint`.

    python -m tests.dangers

reads every source of the library, the toy, the recipes, the benchmarks, the docs and the notebooks,
and prints a line for each: the place, and what is dangerous there. To name a thing is enough, it
need not be called: names are followed through imports, assignments, `getattr` and the like.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("lens_ref", "toy", "recipes", "benchmarks", "docs", "notebooks", "configs")
ESCAPES = "lens_ref/rlvr/untrusted.py"  # the one place that turns text into HTML

BUILTINS = r"(.*\b(builtins|__builtins__)\.)?"
UNKNOWN = "?"  # a part of a name that the source does not say
FORBIDDEN = {
    # a name may be reached through another module (shutil.os.system), hence the (.*\.)?
    r"(.*\.)?(_?pickle|cPickle|dill|cloudpickle|shelve|marshal|joblib)": "a pickle",
    r"(.*\.)?(pandas\.read_pickle|torch\.jit\.load)": "a pickle",
    r"(.*\.)?(os|posix|nt)\.(system|popen)": "a shell",
    r"(.*\.)?(subprocess\.get(status)?output|pty\.spawn|create_subprocess_shell)": "a shell",
    r"get_ipython": "a shell",
    r"(.*\.)?(os|posix|nt)\.(exec|spawn|posix_spawn|startfile).*": "another program",
    r"(.*\.)?(os|posix|nt|builtins|__builtins__)\.\?": "a name that is made up as it runs",
    BUILTINS + r"(eval|exec|compile|__import__)": "code out of text",
    r"(.*\.)?(importlib\.__import__|runpy\.run_(path|module))": "code out of text",
    r"(.*\.)?sympy\.(.*\.)?(sympify|parse_expr)": "code out of text",
    r"(.*\.)?torch\.hub(\.load.*)?": "code that comes with a model",
    r"(.*\.)?yaml\.((full|unsafe)_)?load(_all)?": "YAML that makes any object: yaml.safe_load",
    r"(.*\.)?yaml\.C?(Full|Unsafe)?Loader": "YAML that makes any object: yaml.safe_load",
    r"(.*\.)?jinja2\.(Template|Environment)": "a template without a sandbox",
    r"(.*\.)?tempfile\.mktemp": "a name that another process may take first",
    r"(.*\.)?shutil\.unpack_archive": "an archive that may write anywhere",
    r"(.*\.)?ssl\._create_unverified_context": "a connection without a certificate",
}
NOT_WEIGHTS = r"(Tokenizer|Config|Processor|FeatureExtractor)"
ONLY_WITH = {  # allowed where it is called with this very setting
    r"(.*\.)?torch\.(serialization\.)?load": ("weights_only", True, "a pickle"),
    rf"(?!.*{NOT_WEIGHTS}\.\w+$).*\.from_pretrained": (
        "use_safetensors", True, "weights that may be a pickle",
    ),
    r".*\.extract(all)?": ("filter", "data", "an archive that may write anywhere"),
}  # fmt: skip
ONLY_FALSE = {  # settings that must be the literal False
    "trust_remote_code": "runs code that comes with a model or data set",
    "allow_pickle": "a pickle",
    "shell": "a shell",
}
OWN_MACHINE = re.compile(r"http://(127\.0\.0\.1|localhost)\b")
REMOTE_CODE = re.compile(r"trust_remote_code\W{1,4}true", re.I)
PIPED = re.compile(r"\b(curl|wget)\b[^\n]*\|\s*(ba|z)?sh\b")

Names = dict[str, set[str]]
"""Name in a source → the full names that it may stand for."""


@dataclass(frozen=True)
class Source:
    """What a rule may want to know beside the node that it looks at."""

    file: str
    names: Names
    calls: dict[ast.AST, ast.Call]  # what is called → its call


def in_python(source: str, file: str = "", names: Names | None = None) -> list[str]:
    """What is dangerous in a Python source, `line: what`, from top to bottom.

    Args:
        names: what names stand for, where another source says it too (cells of a notebook).
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    calls = {node.func: node for node in nodes if isinstance(node, ast.Call)}
    known = Source(file, names_in(tree) if names is None else names, calls)
    found = [
        (getattr(node, "lineno", 1), what)
        for node in nodes
        for rule in RULES
        if (what := rule(node, known))
    ]
    return [f"{line}: {what}" for line, what in sorted(set(found))]


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
    found, cells = [], {}
    for number, cell in enumerate(json.loads(source)["cells"]):
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).split("\n")
        if any(re.match(r"\s*!|%%(bash|sh|script)|%s?x\b", line) for line in lines):
            found.append(f"cell {number}: a shell")
        cells[number] = "\n".join("" if re.match(r"\s*[!%]", line) else line for line in lines)
    names = names_in(ast.parse("\n".join(cells.values())))  # of all cells together
    for number, cell in cells.items():
        found += [f"cell {number}, {what}" for what in in_python(cell, names=names)]
    return found


# --- what names stand for -------------------------------------------------------------------------


def names_in(tree: ast.AST) -> Names:
    """What names stand for after the imports and simple assignments of a source, wherever in it
    these are: a name that is assigned twice stands for both."""
    names: Names = defaultdict(set)
    assigned: list[tuple[str, ast.expr]] = []
    roots = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                names[alias.asname or root].add(alias.name if alias.asname else root)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name].add(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Assign):
            assigned += [pair for target in node.targets for pair in _pairs(target, node.value)]
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            assigned += _pairs(node.target, node.value)
        elif isinstance(node, ast.Call) and node.args:  # import_module("os")
            roots.add(str(getattr(node.args[0], "value", "")).split(".")[0])
    roots |= {name.split(".")[0] for full in names.values() for name in full}
    grew = True
    while grew:  # b = a; a = os
        grew = False
        for name, value in assigned:
            for full in _meanings(value, names):
                # a long one comes of `node = node.next`
                known = full.split(".")[0] in roots and full.count(".") < 5
                if known and full not in names[name]:
                    names[name].add(full)
                    grew = True
    return dict(names)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of an assignment, also of `a, b = c, d`."""
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for one, its in zip(target.elts, value.elts, strict=False):
            yield from _pairs(one, its)
    elif isinstance(target, ast.Name | ast.Attribute):
        yield ast.unparse(target), value


def _meanings(node: ast.AST, names: Names) -> set[str]:
    """The full names that an expression may stand for; none where it is not like a name."""
    match node:
        case ast.Name(id=name):
            return names.get(name) or {name}
        case ast.NamedExpr(value=value):
            return _meanings(value, names)
        case ast.Attribute(value=owner, attr=attribute):
            return names.get(ast.unparse(node)) or _members(owner, attribute, names)
        case ast.Subscript(value=owner, slice=ast.Constant(value=str(key))):
            return _members(owner, key, names)  # sys.modules["os"]
        case ast.Call(func=func, args=arguments):
            return _reached(_meanings(func, names), arguments, names)
    return set()


def _members(owner: ast.AST, attribute: str, names: Names) -> set[str]:
    owners = _meanings(owner, names) or {UNKNOWN}
    return owners if attribute == "__dict__" else {f"{name}.{attribute}" for name in owners}


def _reached(called: set[str], arguments: list[ast.expr], names: Names) -> set[str]:
    """What a call stands for that only looks something up."""
    literals = [getattr(argument, "value", None) for argument in arguments]
    match [text if isinstance(text, str) else UNKNOWN for text in literals]:
        case [_, name, *_] if called & {"getattr", "builtins.getattr"}:
            return _members(arguments[0], name, names)
        case [module, *_] if called & {"importlib.import_module", "__import__"}:
            return {module}
        case [_] if called & {"vars", "builtins.vars"}:
            return _meanings(arguments[0], names)
        case [] if called & {"globals", "locals"}:
            return {"builtins"}
    return set()


# --- rules: each looks at one node ----------------------------------------------------------------


def _import(node: ast.AST, source: Source) -> str | None:
    modules = []
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        if node.module == "html" and source.file.startswith("lens_ref") and source.file != ESCAPES:
            return "HTML is made with as_html of lens_ref.rlvr.untrusted"
        if node.names[0].name == "*" and node.module.split(".")[0] not in FOLDERS:
            return "names that can't be followed: import *"
    return next(filter(None, map(_forbidden, modules)), None)


def _forbidden(name: str) -> str | None:
    for pattern, what in FORBIDDEN.items():
        if re.fullmatch(pattern, name):
            return f"{what}: {name}"
    return None


def _mention(node: ast.AST, source: Source) -> str | None:
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return None
    call = source.calls.get(node)
    for name in sorted(_meanings(node, source.names)):
        if what := _forbidden(name):
            return what
        for pattern, (keyword, value, what) in ONLY_WITH.items():
            if re.fullmatch(pattern, name) and (call is None or _keyword(call, keyword) != value):
                return f"{what}: {name} without {keyword}={value!r}"
    return None


def _keyword(call: ast.Call, name: str) -> object:
    """A literal keyword argument; None where it is something else."""
    values = [keyword.value for keyword in call.keywords if keyword.arg == name]
    return values[0].value if values and isinstance(values[0], ast.Constant) else None


def _setting(node: ast.AST, source: Source) -> str | None:
    """A keyword argument, or an entry of a dictionary that may become one."""
    pairs: list[tuple[object, ast.expr]] = []
    if isinstance(node, ast.keyword):
        pairs = [(node.arg, node.value)]
    elif isinstance(node, ast.Dict):
        keys = [getattr(key, "value", None) for key in node.keys]
        pairs = list(zip(keys, node.values, strict=True))
    for name, value in pairs:
        literal = getattr(value, "value", ...)
        if name in ONLY_FALSE and literal is not False:
            return f"{ONLY_FALSE[str(name)]}: {name}"
        if name == "verify" and literal is False:
            return "a connection without a certificate: verify=False"
    return None


def _table_query(node: ast.AST, source: Source) -> str | None:
    """pandas computes what the text of .eval and .query says."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        computes = node.func.attr in ("eval", "query") and node.args
        if computes and source.file.startswith("lens_ref"):
            return f"code out of text: .{node.func.attr}"
    return None


def _address(node: ast.AST, source: Source) -> str | None:
    text = node.value if isinstance(node, ast.Constant) else None
    if isinstance(text, str) and "http://" in OWN_MACHINE.sub("", text):
        return "an address without TLS"
    return None


def _assertion(node: ast.AST, source: Source) -> str | None:
    """In the library an assert may only tell mypy a type: `python -O` takes it away."""
    if not isinstance(node, ast.Assert) or not source.file.startswith("lens_ref"):
        return None
    test = node.test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        return None
    if isinstance(test, ast.Call) and getattr(test.func, "id", "") == "isinstance":
        return None
    return "an assert that checks more than a type: python -O takes it away"


RULES: tuple[Callable[[ast.AST, Source], str | None], ...] = (
    _import, _mention, _setting, _table_query, _address, _assertion,
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
