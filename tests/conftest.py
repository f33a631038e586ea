"""Shared by every test: hypothesis draws the same examples each time and measures no time."""

from hypothesis import Phase, settings

_FIXED = {
    "max_examples": 60,
    "deadline": None,
    "derandomize": True,
    "database": None,
    "report_multiple_bugs": False,
}
settings.register_profile(
    "lens_ref", phases=(Phase.explicit, Phase.generate, Phase.shrink), **_FIXED
)
settings.register_profile("no_shrinking", phases=(Phase.explicit, Phase.generate), **_FIXED)
settings.load_profile("lens_ref")
