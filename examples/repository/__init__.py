"""A worked example: sixteen years of a real project's merged branches, governed one by one."""
