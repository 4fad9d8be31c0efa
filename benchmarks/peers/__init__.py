"""The same logic on other systems, written as their documentation advises."""
