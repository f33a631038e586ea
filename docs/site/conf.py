"""How the site is made: `make docs` runs `sphinx-build -c docs/site . build/docs`.

Pages are the files of the repository where they lie, so a link that works there works here. The
notebooks are shown as they are stored; nothing is executed. A page fetches nothing from elsewhere:
MathJax comes from a package and lies in the site.
"""

from __future__ import annotations

import sys
from pathlib import Path

import lens_ref

sys.path.insert(0, str(Path(__file__).resolve().parent))

project = "lens_ref"
release = lens_ref.__version__
html_title = f"lens_ref {release}"
copyright = "the authors of lens_ref, Apache-2.0"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx-mathjax-offline",
    # these three are beside this file
    "folders",
    "docstrings",
    "fields_table",
]
root_doc = "README"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "recipes/verl/README.md",
    "docs/*.md",
    "docs/site/**",
    "notebooks/**.ipynb",
    "notebooks/**.md",
    "configs/README.md",
    "results/**README.md",
    "tests/README.md",
]
exclude_patterns = [
    *(".*", "build", "dist", "runs", "**/__pycache__", "**/.ipynb_checkpoints"),
    *("docs/site/static", "docs/site/navigation.md"),
]

nb_execution_mode = "off"
nb_ipywidgets_js = {}  # sliders need a kernel; the stored notebooks hold their figures
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_dmath_allow_labels = False  # as in Jupyter, "(...)" after a formula is text
myst_dmath_double_inline = True  # ... and $$ may stand inside a paragraph
myst_heading_anchors = 4
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables and formulas that a cell displays
smartquotes_action = "D"  # dashes alone: "name:key=value" is typed as it stands
highlight_language = "none"  # a block that names no language is a command or a formula
suppress_warnings = ["myst.header"]  # a glossary may go from its title straight to small headings

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
napoleon_numpy_docstring = False

html_theme = "furo"
pygments_dark_style = "github-dark"  # furo's own underlines what is imported, as if it were a link
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = False
html_domain_indices = False
html_show_sphinx = False
_MONOSPACE = '"DejaVu Sans Mono", SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace'
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"font-stack--monospace": _MONOSPACE},  # π̄ needs combining marks
}
