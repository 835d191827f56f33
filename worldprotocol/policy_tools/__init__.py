"""Tools for policy authors: explain, cases, hypothetical rulings, lint, history."""
