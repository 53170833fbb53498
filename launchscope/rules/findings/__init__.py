"""One rule per file. Each exposes RULE."""
