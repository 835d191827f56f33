"""Reports: what a log tells, as one HTML file that needs nothing else. One pass over the log, in bounded memory."""
