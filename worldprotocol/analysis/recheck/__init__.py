"""Recheck: every recorded step performed again."""
