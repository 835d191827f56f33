# Sorts every note and drops lines that are there twice: written beside, then put in place.
set -e
for note in notes/*.txt; do
  sort -u "$note" > "$note.new"
  mv "$note.new" "$note"
  echo "tidied $note"
done
