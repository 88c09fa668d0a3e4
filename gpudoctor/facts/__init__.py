"""Typed facts: what parsers yield and checkers read. Numbers carry their unit in the field name, None is unknown."""
