# What changelog.py does, in another language: reads the whole file, waits for Enter, and writes it back.
set -e
text=$(cat CHANGES.rst)
echo read
read -r answer || true
printf '%s\n- %s\n' "$text" "$1" > CHANGES.rst
