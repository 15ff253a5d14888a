"use strict";
(function () {
	var data = JSON.parse(document.getElementById("timeline-data").textContent);
	var picture = document.getElementById("timeline-picture");
	var tip = document.getElementById("tip");
	var WIDTH = 1280, LEFT = 210, TOP = 8, BOTTOM = 40;
	var count = data.rows.length;
	var step = count <= 24 ? 24 : count <= 64 ? 16 : 10;
	var bottom = TOP + step * count, height = bottom + BOTTOM;
	var last = 0, from, to, drag = null;
	/* An operation is a list: the names of its places, as timeline.py writes them. */
	var ROW = 0, BEGIN = 1, DURATION = 2, WAIT = 3, NAME = 4, SEQUENCE = 5, BYTES = 6, DTYPE = 7, ALGORITHM = 8,
	    STATE = 9, LABEL = 10, LATE = 11, WAITS = 12, IS_ABOUT = 13, RANK = 14;
	var byRow = data.rows.map(function () { return []; });

	data.operations.forEach(function (op) {
		byRow[op[ROW]].push(op);
		last = Math.max(last, op[BEGIN] + op[DURATION]);
	});
	last = last || 1;
	picture.setAttribute("viewBox", "0 0 " + WIDTH + " " + height);

	function escaped(text) {
		return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");
	}

	function xOf(us) {
		return LEFT + (us - from) / (to - from) * (WIDTH - LEFT - 8);
	}

	/* The unit of a time line so long, and how many microseconds it has. */
	function unitOf(us) {
		return us >= 2e6 ? ["s", 1e6] : us >= 2e3 ? ["ms", 1e3] : us >= 2 ? ["us", 1] : ["ns", 1e-3];
	}

	function timeText(us) {
		var unit = unitOf(us * 2);
		return Number((us / unit[1]).toPrecision(4)) + " " + unit[0];
	}

	function rect(x, width, row, colour, opacity, isBad) {
		return '<rect x="' + x.toFixed(2) + '" width="' + Math.max(width, 0.4).toFixed(2) + '" y="' + (TOP + step * row + 2) +
			'" height="' + (step - 4) + '" fill="' + colour + '" fill-opacity="' + opacity + '"' +
			(isBad ? ' stroke="#d1002b" stroke-width="2"' : "") + "/>";
	}

	/* Neighbours of one colour that are narrower than a pixel are one rectangle. */
	function drawRow(operations, row) {
		var drawn = [], run = null;
		function flush() {
			if (run)
				drawn.push(rect(run.x, run.end - run.x, row, run.colour, 1, false));
			run = null;
		}
		operations.forEach(function (op) {
			if (op[BEGIN] > to || op[BEGIN] + op[DURATION] < from)
				return;
			var x = Math.max(xOf(op[BEGIN]), LEFT), end = Math.min(xOf(op[BEGIN] + op[DURATION]), WIDTH - 8);
			var colour = data.colours[data.texts[op[NAME]]], isBad = data.texts[op[STATE]] !== "done";
			if (end - x < 1 && !isBad) {
				if (run && (run.colour !== colour || x - run.end > 0.5))
					flush();
				run = run || {x: x, end: x, colour: colour};
				run.end = Math.max(run.end, end);
				return;
			}
			flush();
			var come = Math.min(Math.max(xOf(op[BEGIN] + op[WAIT]), x), end);
			if (come > x || isBad)
				drawn.push(rect(x, come - x, row, colour, 0.3, false));
			drawn.push(rect(isBad ? x : come, end - (isBad ? x : come), row, colour, isBad ? 0.3 : 1, isBad));
		});
		flush();
		return drawn;
	}

	function drawTicks() {
		var unit = unitOf(to - from), span = (to - from) / unit[1];
		var size = Math.pow(10, Math.floor(Math.log(span / 8) / Math.LN10));
		var ticks = [1, 2, 5, 10].filter(function (k) { return span / (k * size) <= 10; })[0] * size;
		var drawn = [], digits = Math.max(0, -Math.floor(Math.log(ticks) / Math.LN10 + 1e-9));
		for (var k = Math.ceil(from / unit[1] / ticks - 1e-9); k * ticks <= to / unit[1] * (1 + 1e-12); k++) {
			var x = xOf(k * ticks * unit[1]).toFixed(1);
			drawn.push('<line class="grid" x1="' + x + '" x2="' + x + '" y1="' + TOP + '" y2="' + bottom + '"/><text x="' + x +
				'" y="' + (bottom + 14) + '" text-anchor="middle">' + (k * ticks).toFixed(digits) + "</text>");
		}
		drawn.push('<text x="' + (WIDTH - 8) + '" y="' + (bottom + 32) + '" text-anchor="end">time since the first operation, ' +
			unit[0] + "</text>");
		return drawn;
	}

	function drawLabels() {
		return data.rows.map(function (row, i) {
			var y = TOP + step * i, line = row[0] ? '<line class="axis" x1="0" x2="' + WIDTH + '" y1="' + y + '" y2="' + y + '"/>' : "";
			var size = Math.min(11, step - 1);
			return line + '<text class="rank" style="font-size: ' + size + 'px" x="4" y="' + (y + step / 2 + 4) + '">' + escaped(row[0]) +
				'</text><text style="font-size: ' + size + 'px" x="60" y="' + (y + step / 2 + 4) + '">' +
				escaped(row[1].length > 25 ? row[1].slice(0, 24) + "\u2026" : row[1]) + "</text>";
		});
	}

	function draw(begin, end) {
		var least = 0.01;
		from = Math.max(0, Math.min(begin, last - least));
		to = Math.min(last, Math.max(end, from + least));
		var blocks = [].concat.apply([], byRow.map(drawRow));
		picture.innerHTML = drawTicks().join("") + drawLabels().join("") + '<g id="blocks">' + blocks.join("") + "</g>" +
			'<rect id="cursor" class="cursor" y="' + TOP + '" height="' + (bottom - TOP) + '" width="0" x="0"/>';
	}

	function placeOf(event) {
		var box = picture.getBoundingClientRect();
		return {x: (event.clientX - box.left) / box.width * WIDTH, y: (event.clientY - box.top) / box.height * height};
	}

	function timeAt(x) {
		return from + (Math.min(Math.max(x, LEFT), WIDTH - 8) - LEFT) / (WIDTH - LEFT - 8) * (to - from);
	}

	/* The operation under the pointer, or the nearest within two pixels. */
	function operationAt(place) {
		var row = Math.floor((place.y - TOP) / step), us = timeAt(place.x), near = null, least = 2 / (WIDTH - LEFT) * (to - from);
		if (place.x < LEFT - 2 || row < 0 || row >= count)
			return null;
		byRow[row].forEach(function (op) {
			var away = Math.max(op[BEGIN] - us, us - op[BEGIN] - op[DURATION], 0);
			if (away <= least) {
				least = away;
				near = op;
			}
		});
		return near;
	}

	function describe(op) {
		var text = "rank " + op[RANK] + ": " + data.texts[op[NAME]] + (op[SEQUENCE] >= 0 ? " #" + op[SEQUENCE] : "") + ", " + op[BYTES] +
			" B " + data.texts[op[DTYPE]] + "\n" + timeText(op[DURATION]) + " from " + timeText(op[BEGIN]) + " on, " + data.texts[op[STATE]];
		text += op[IS_ABOUT] ? " (a short call, whose time lies between its neighbours')" : "";
		text += data.texts[op[ALGORITHM]] ? "\nalgorithm: " + data.texts[op[ALGORITHM]] : "";
		text += data.texts[op[LABEL]] ? "\nfor: " + data.texts[op[LABEL]] : "";
		text += op[LATE] >= 0 ? "\nwaited " + timeText(op[WAIT]) + " for rank " + op[LATE] + ", which came last" : "";
		return text + (data.texts[op[WAITS]] ? "\nwaits " + data.texts[op[WAITS]] : "");
	}

	function showTip(event) {
		var op = operationAt(placeOf(event));
		tip.style.display = op ? "block" : "none";
		if (!op)
			return;
		tip.textContent = describe(op);
		tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
		tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + "px";
	}

	picture.addEventListener("mousedown", function (event) {
		drag = placeOf(event).x;
		event.preventDefault();
	});
	picture.addEventListener("mousemove", function (event) {
		var cursor = document.getElementById("cursor"), x = placeOf(event).x;
		if (drag !== null) {
			cursor.setAttribute("x", Math.min(drag, x));
			cursor.setAttribute("width", Math.abs(x - drag));
		}
		showTip(event);
	});
	window.addEventListener("mouseup", function (event) {
		var begin = drag, x = placeOf(event).x;
		drag = null;
		if (begin === null)
			return;
		if (Math.abs(x - begin) > 4)
			draw(timeAt(Math.min(begin, x)), timeAt(Math.max(begin, x)));
		else
			draw(from, to);
	});
	picture.addEventListener("mouseleave", function () { tip.style.display = "none"; });

	function button(name, begin, end) {
		document.getElementById(name).addEventListener("click", function () {
			var span = to - from, middle = (from + to) / 2;
			var low = begin(middle, span), high = end(middle, span);
			if (low < 0 && high <= last)
				high -= low;
			if (high > last && low >= 0)
				low -= high - last;
			draw(low, high);
		});
	}
	button("zoom-all", function () { return 0; }, function () { return last; });
	button("zoom-in", function (middle, span) { return middle - span / 4; }, function (middle, span) { return middle + span / 4; });
	button("zoom-out", function (middle, span) { return middle - span; }, function (middle, span) { return middle + span; });
	button("move-left", function (middle, span) { return middle - span; }, function (middle) { return middle; });
	button("move-right", function (middle) { return middle; }, function (middle, span) { return middle + span; });
	draw(0, last);
}());
