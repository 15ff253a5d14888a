#!/usr/bin/env bash
# slow: 3 s
# What would break: a page of tutti-report that is right to read and wrong to look at: its script fails, the time line stays
# empty, or the pointer finds nothing.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/tools/browser.sh"
. "$SOURCE_DIR/tests/tools/report_inputs.sh"
make_inputs
expect 0 "$BUILD_DIR/tools/tutti-report" reduce2.json reduce2p.json barrier.json own.json one two -o page.html
browse "file://$scratch/page.html" --screenshot="$scratch/page.png" >/dev/null || complain "no screenshot: $(cat console)"
no_messages
is_picture page.png

# A hand that uses the page: it writes down what it sees after each step.
sed 's,</body></html>$,,' page.html >used.html
cat >>used.html <<'END'
<script>
(function () {
	var picture = document.getElementById("timeline-picture"), seen = [];
	var box = picture.getBoundingClientRect();
	function blocks() { return document.querySelectorAll("#blocks rect").length; }
	function ticks() {
		return [].map.call(document.querySelectorAll("#timeline-picture text[text-anchor=middle]"), function (t) {
			return t.getAttribute("x") + " " + t.textContent; }).join();
	}
	function mouse(kind, x, y, to) {
		(to || picture).dispatchEvent(new MouseEvent(kind, {clientX: box.left + x, clientY: box.top + y, bubbles: true}));
	}
	function write(name, value) { seen.push(name + "=" + value); }
	write("blocks", blocks());
	var whole = ticks(), r = document.querySelector("#blocks rect").getBoundingClientRect();
	mouse("mousemove", r.left - box.left + r.width / 2, r.top - box.top + r.height / 2);
	write("tip", document.getElementById("tip").textContent.replace(/\n/g, "; "));
	mouse("mousedown", box.width * 0.8, 20);
	mouse("mousemove", box.width * 0.9, 20);
	mouse("mouseup", box.width * 0.9, 20, window);
	write("zoomed", ticks() !== whole && ticks().length > 3);
	document.getElementById("zoom-all").click();
	write("back", ticks() === whole);
	document.getElementById("zoom-in").click();
	write("in", ticks() !== whole);
	document.getElementById("move-right").click();
	document.getElementById("zoom-out").click();
	document.getElementById("zoom-out").click();
	write("out", ticks() === whole);
	write("narrow", document.documentElement.scrollWidth <= 1200);
	var line = document.createElement("pre");
	line.id = "seen";
	line.textContent = seen.join("|");
	document.body.appendChild(line);
}());
</script></body></html>
END
browse "file://$scratch/used.html" --dump-dom >dom || complain "no page: $(cat console)"
no_messages
seen=$(sed -n 's/.*<pre id="seen">\([^<]*\)<.*/\1/p' dom)
for words in 'blocks=[1-9]' 'tip=rank [01]: all_reduce #' 'zoomed=true' 'back=true' 'in=true' 'out=true' 'narrow=true'; do
	grep -qE "(^|\|)$words" <<<"$seen" || complain "no $words in what was seen: $seen"
done
exit $failures
