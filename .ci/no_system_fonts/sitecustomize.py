"""Hide system fonts from matplotlib: Python imports this file if its directory is on PYTHONPATH."""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder


class FontHider(MetaPathFinder):
    """Leaves matplotlib.font_manager the fonts that come with matplotlib."""

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        if name != "matplotlib.font_manager":
            return None
        spec = PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def execute_and_hide(module) -> None:
            execute(module)
            own = [font for font in module.fontManager.ttflist if "mpl-data" in font.fname]
            module.fontManager.ttflist = own
            module.findSystemFonts = lambda *arguments, **options: []

        spec.loader.exec_module = execute_and_hide
        return spec


sys.meta_path.insert(0, FontHider())
