"""The pages of the documentation site that are made while it is built.

hooks.py      what MkDocs calls
links.py      where a file of the repository is on the site; links between the two
python.py     the public names of Python, from their docstrings; imports nothing of Tideline
commands.py   a page for each command, from what `--help` knows
http.py       routes and messages, from the description of the interface (OpenAPI)
decisions.py  the list of decisions
results.py    the tables and plots of benchmarks/results
"""
