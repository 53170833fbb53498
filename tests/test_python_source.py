"""Code of others is read in silence."""

from __future__ import annotations

import ast
import warnings

import pytest

from launchscope.python_source import parsed

QUOTED = 'pattern = "\\d"\n'


def test_no_warning_of_the_interpreter_quotes_the_source() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ast.unparse(parsed(QUOTED)) == r"pattern = '\\d'"
        with pytest.raises(SyntaxError, match="escape"):  # or the line above could not fail
            ast.parse(QUOTED)


def test_a_source_that_is_no_python_raises_as_the_parser_does() -> None:
    with pytest.raises(SyntaxError):
        parsed("def")
