"""The Linear Road benchmark on Tideline: `python -m examples.linear_road`, see README.md here."""
