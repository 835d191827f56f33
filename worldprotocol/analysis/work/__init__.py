"""The work list of analyses, and the processes of this machine or of a cluster that perform it."""
