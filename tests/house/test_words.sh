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

words . || { cat "$scratch/said"; failures=1; }
exit $failures
