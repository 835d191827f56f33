"""Reports of a log as self-contained HTML files, from one pass in bounded memory."""
