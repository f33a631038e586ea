"""When a finished cell counts as done: its code is read alike by every Python, and texts of it that
change no number don't matter."""

from pathlib import Path

from toy.compare.cell import code


def read(path: Path, text: str) -> str:
    path.write_text(text)
    return code(str(path))


def test_the_text_of_a_syntax_tree_is_the_same_on_every_python(tmp_path):
    # 3.12 adds type parameters to definitions, 3.13 leaves empty lists out
    assert read(tmp_path / "a.py", "def f(x):\n    return None\n") == (
        "Module(body=[FunctionDef(name='f', args=arguments(posonlyargs=[], args=[arg(arg='x')], "
        "kwonlyargs=[], kw_defaults=[], defaults=[]), body=[Return(value=Constant(value=None))], "
        "decorator_list=[])], type_ignores=[])"
    )
    # 3.12.1 puts an empty text after a nested field
    assert read(tmp_path / "b.py", "f'{x:{y}}'\n") == (
        "Module(body=[Expr(value=JoinedStr(values=[FormattedValue(value=Name(id='x', ctx=Load()), "
        "conversion=-1, format_spec=JoinedStr(values=[FormattedValue(value=Name(id='y', "
        "ctx=Load()), conversion=-1)]))]))], type_ignores=[])"
    )


def test_comments_and_docstrings_do_not_count_and_numbers_do(tmp_path):
    bare = read(tmp_path / "a.py", "def f():\n    return 1\n")
    told = '"""Of f."""\n\n\ndef f():\n    """One."""\n    return 1  # one\n'
    assert read(tmp_path / "b.py", told) == bare
    assert read(tmp_path / "c.py", "def f():\n    return 2\n") != bare
