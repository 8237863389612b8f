"""The claims of README.md, docs/ and docstrings as data, and the page that says what each one rests on."""
