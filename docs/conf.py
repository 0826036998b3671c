"""How `make docs` builds the site: Sphinx reads these pages, Furo lays them out, nothing is fetched."""

import sys
from pathlib import Path

import repsynth

sys.path.insert(0, str(Path(__file__).parent / "_site"))

project = "repsynth"
author = "the repsynth authors"
version = release = repsynth.__version__
html_title = "repsynth"

extensions = ["myst_parser", "sphinx.ext.autodoc", "pages"]
exclude_patterns = ["_site"]
source_suffix = {".md": "markdown", ".ipynb": "notebook"}

# Links to headings are checked like links to pages; `make docs` turns every warning into an error.
myst_heading_anchors = 4
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other libraries; there is no network to look them up

highlight_language = "none"
default_role = "literal"  # docstrings write code in single backticks

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
python_display_short_literal_types = True
python_maximum_signature_line_length = 90
add_module_names = False

html_theme = "furo"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which a browser forbids on disk
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "tango"
pygments_dark_style = "github-dark"
