"""Results of perf/compare: the charts of its own report, from its results.json."""
from harness import bounds, charts, machine, page
from harness.page import escape
from harness.rounds import Place, Point
from tutti_report.sources import is_number


def points_of(data):
    """{(place's name, dtype): points}, in the order of measuring."""
    places, found = {}, {}
    for p in data["points"]:
        key = p["over"], p["ranks"], p["collective"]
        point = Point(places.setdefault(key, Place(*key)), p["dtype"], p["bytes"])
        point.times = {name: times for name, times in p["times_us"].items() if times}
        if point.times:
            found.setdefault((str(point.place), p["dtype"]), []).append(point)
    return {key: sorted(points, key=lambda p: p.size) for key, points in found.items()}


def numbers_fit(value):
    if isinstance(value, (dict, list)):
        return all(numbers_fit(inside) for inside in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, (int, float)) or is_number(value) or isinstance(value, bool)


def usable_limits(limits):
    """What cannot be drawn is left out: they are lines beside the curves."""
    if not numbers_fit(limits):
        return None
    try:
        bounds.lines_at(limits, Place("shm", 2, "all_reduce"), 1 << 20)
        bounds.lines_at(limits, Place("tcp", 2, "all_reduce"), 1 << 20)
        return limits
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def about(data):
    parts = [f"Commit of Tutti: {data.get('commit', 'unknown')}."]
    if isinstance(data.get("machine"), dict):
        parts.append(machine.one_line(data["machine"]))
    return "".join(f"<p>{escape(part)}</p>" for part in parts) + (
        "" if data.get("complete", True) else '<p class="warning">These results are not complete.</p>')


def html_of(found, _tools):
    parts = []
    for source in found:
        parts.append(f"<h2>Tutti and its peers: {escape(source.path)}</h2>{about(source.data)}<p>Medians over the rounds; "
                     "the upright lines are the middle half of the rounds. A ratio is taken within each round.</p>")
        for (place, dtype), points in points_of(source.data).items():
            parts.append(f"<h3>{escape(place)}, {escape(dtype)}</h3>"
                         f"{charts.charts_of(usable_limits(source.data.get('limits')), points[0].place, points)}"
                         f"{page.folded('The numbers', charts.times_table(points))}")
    return "".join(parts)
