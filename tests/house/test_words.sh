#!/usr/bin/env bash
# What would break: that a reader who knows the field knows our words. Those that docs/glossary.md replaces do not come back.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
cd "$SOURCE_DIR" || exit 1
tree=$scratch/tree

words()
{
	python3 tests/house/words.py "$@" >"$scratch/said"
}

# seen TEXT: the planted tree is refused, with this.
seen()
{
	words "$tree" && complain "unseen: $1"
	grep -q "$1" "$scratch/said" || complain "not '$1', but: $(cat "$scratch/said")"
}

mkdir -p "$tree/docs" "$tree/core" "$tree/tests/house" "$tree/tests/core"
printf '## Not these words\n\n| not | but |\n|---|---|\n| widget, widgets | visitor |\n| hand back | drain |\n' >"$tree/docs/glossary.md"
echo 'int WIDGET_MAX; /* Widgets hand_back a widgethouse. */' >"$tree/core/a.c"
seen '^core widget 2: times in this folder; say: visitor$'
seen '^core hand_back 1: '
words "$tree" --update
words "$tree" || complain "what is counted is refused: $(cat "$scratch/said")"
mkdir "$tree/core/room"
mv "$tree/core/a.c" "$tree/core/room/"
words "$tree" || complain "a file that moves below its folder is refused: $(cat "$scratch/said")"
touch "$tree/tests/core/widget_list.c"
seen '^tests/core widget 1: '
rm "$tree/tests/core/widget_list.c"
echo 'int tcp_widget_max; /* hand_back */' >"$tree/core/room/a.c"
seen "'core widget 2' is no longer so"
echo 'int isWidget; /* Widgeting is to hand' >"$tree/core/room/a.c"
echo ' * back. */' >>"$tree/core/room/a.c"
words "$tree" || complain "counts other than 2 and 1: $(cat "$scratch/said")" # other cases, endings and lines count
words "$tree" --update
printf '/* It ends.\n * Who waits is told so. */\nint a; /* Who asks, who waits */\n' >"$tree/core/b.h"
seen "^core/b.h: .*'Who waits is told so'"
seen "^core/b.h: .*'Who asks, who waits'"
printf '/* What ranks send: numbers. */\n' >"$tree/core/b.h"
seen "^core/b.h: .*'What ranks send: numbers'"

rm "$tree/core/b.h"
mkdir -p "$tree/tools" "$tree/tests/fuzz/seeds/shm" "$tree/tests/mutants"
# Comments of both kinds, texts of the programs, and the tools.
printf '// It ends.\n// Who waits is told so.\nint a;\n' >"$tree/core/b.h"
seen "^core/b.h: .*'Who waits is told so'"
printf 'char quote = %s; const char *a = "It ends. "\n\t"Who waits is told so";\n' "'\"'" >"$tree/core/b.h"
seen "^core/b.h: .*'Who waits is told so'"
printf '/* Says "Who?" */ const char *a = "//", *b = "of Who";\n' >"$tree/core/b.h"
words "$tree" || complain "refused: $(cat "$scratch/said")"
mv "$tree/core/b.h" "$tree/tools/b.c"
echo '/* Who waits */' >>"$tree/tools/b.c"
seen "^tools/b.c: .*'Who waits'"
rm "$tree/tools/b.c"

# The names of seeds, not their bytes; and of mutants.
echo widget >"$tree/tests/fuzz/seeds/shm/bytes"
words "$tree" || complain "reads a seed: $(cat "$scratch/said")"
touch "$tree/tests/fuzz/seeds/shm/many_widgets" "$tree/tests/mutants/hand_back.patch"
seen '^tests/fuzz widget 1: '
seen '^tests/mutants hand_back 1: '
rm "$tree/tests/fuzz/seeds/shm/many_widgets" "$tree/tests/mutants/hand_back.patch"
touch "$tree/tests/fuzz/seeds/shm/many_notes"
seen '^tests/fuzz notes 1: .*call records'
rm "$tree/tests/fuzz/seeds/shm/many_notes"

# A word of the fixed list needs its row in the glossary.
printf '# why\nwidgets\nlost word\n' >"$tree/tests/house/old_words.txt"
seen "no row with 'lost word'"
grep -q "'widgets'" "$scratch/said" && complain "a row that is there is missed: $(cat "$scratch/said")"

words . || { cat "$scratch/said"; failures=1; }
exit $failures
