#!/usr/bin/env bash
# What would break: docs/failure.md or docs/consensus.md says of a wait that it is shorter or longer than it is, or nothing.
set -u
cd "$SOURCE_DIR" || exit 1
header=collectives/control/deadlines.h
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
page=$scratch/both.md
cat docs/failure.md docs/consensus.md >"$page"

# compare HEADER PAGE: prints names that only one of them has, and values that the page does not have.
compare()
{
	awk -F'|' '
	FNR == NR && /^#define [A-Z_]+ +[0-9]+/ { split($0, word, " "); value[word[2]] = word[3] }
	FNR == NR || !/^\| [A-Z_]+ \|/ || $2 ~ /TUTTI_/ { next }
	{
		gsub(/ /, "", $2)
		has_row[$2] = 1
		if (!($2 in value)) { print $2 ": only in the table"; next }
		ms = " " value[$2] " ms "; s = " " value[$2] / 1000 " s "; number = " " value[$2] " "
		text = $3; gsub(/,/, " ", text)
		if (!index(text, ms) && !index(text, s) && !($2 !~ /_MS$/ && index(text, number)))
			print $2 ": " value[$2] " in the header, \"" $3 "\" in the table"
	}
	END { for (name in value) if (!(name in has_row)) print name ": only in the header" }' "$1" "$2"
}

failures=$(compare $header "$page")
[ -n "$failures" ] && { echo "$failures"; exit 1; }

# The check sees what it is for.
planted()
{
	[ -n "$(compare "$@")" ] || { echo "unseen: $*"; exit 1; }
}
sed 's/\(SLOW_MS *\)20/\121/' $header >"$scratch/a.h"
planted "$scratch/a.h" "$page"
sed '/ GOODBYE_MS /d' $header >"$scratch/a.h"
planted "$scratch/a.h" "$page"
sed '/ GOODBYE_MS /d' "$page" >"$scratch/a.md"
planted $header "$scratch/a.md"
sed 's/| AGREEMENT_TIMEOUTS | 6/| AGREEMENT_TIMEOUTS | 7/' "$page" >"$scratch/a.md"
planted $header "$scratch/a.md"
exit 0
