#!/usr/bin/env bash
# slow: 2 s
# What would break: the page of tutti-top --web in a browser: its script fails, or it does not tell who waits for whom.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/tools/browser.sh"
. "$SOURCE_DIR/tests/tools/hanging_ranks.sh"
start_ranks
start_web "${ranks[@]}"
browse "$address" --screenshot="$scratch/page.png" >/dev/null || complain "no screenshot: $(cat console)"
no_messages
is_picture page.png
browse "$address" --dump-dom >dom || complain "no page: $(cat console)"
no_messages
for words in '<p class="waits">Rank 0 waits for rank 1 of [0-9a-f]*, for [0-9.]* s\.</p>' '<td class="wide">all_reduce #5</td>' \
	'<td class="waits">under way</td>' "<td class=\"number\">${ranks[1]}</td>" 'fill="#d1495b"' '<polyline points="[0-9]'; do
	grep -qE -- "$words" dom || complain "no '$words' in $(head -c 6000 dom)"
done
end_ranks
wait "$web"
# What it says when nobody answers.
ended='id="status" class="bad">tutti-top does not answer any more'
sed 's/setTimeout(look, [^;]*;/;/' "$SOURCE_DIR/tools/tutti-top/top.html" >alone.html
browse "file://$scratch/alone.html" --dump-dom >dom
grep -q "$ended" dom || complain "a page without a server says nothing of that"
# And when somebody never does.
sed 's/^"use strict";$/&\nwindow.fetch = function (_, options) { return new Promise(function (_, fail) { if (options) options.signal.onabort = fail; }); };/' \
	alone.html >silent.html
browse "file://$scratch/silent.html" --virtual-time-budget=30000 --dump-dom >dom
grep -q "$ended" dom || complain "a page of a server that hangs says: $(grep -a '"status"' dom)"
exit $failures
