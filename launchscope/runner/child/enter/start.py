"""The program that the script's interpreter runs first, before launchscope can be imported there.

Nothing but the standard library is imported from here, and only from its own folder: neither this
folder nor PYTHONPATH is on sys.path while launchscope's modules are loaded, so no file of the
person runs before the script does. A `from __future__` would be such an import.
"""

import sys

if __name__ == "__main__":
    startup = frozenset(sys.modules)
    if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
        del sys.path[0]
    library = "python{}{}.zip".format(*sys.version_info)
    ahead = next((n for n, entry in enumerate(sys.path) if entry.endswith(library)), 0)
    before = sys.path[:ahead]
    del sys.path[:ahead]
    try:
        import importlib.util

        folder = __file__.removesuffix("/runner/child/enter/start.py")
        spec = importlib.util.spec_from_file_location(
            "launchscope", folder + "/__init__.py", submodule_search_locations=[folder]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules["launchscope"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        from launchscope.runner.child.main import main

        sys.path[:0] = before
        code = main(sys.argv[1], startup)
    except KeyboardInterrupt:  # not in the script, so there is nothing to show
        code = 130
    sys.exit(code)
