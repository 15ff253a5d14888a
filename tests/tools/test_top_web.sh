#!/usr/bin/env bash
# What would break: tutti-top --web: what it shows of ranks, and who gets to see it.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/tools/hanging_ranks.sh"
start_ranks
start_web "${ranks[@]}"
timeout 60 python3 -B - "$address" "${ranks[@]}" <<'END' || complain "the server of tutti-top"
import json, re, socket, sys, urllib.error, urllib.request
address, ranks = sys.argv[1], [int(pid) for pid in sys.argv[2:]]
port = int(address.split(":")[2].split("/")[0])

def get(url):
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()

status, headers, page = get(address)
assert status == 200 and page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n"), page
assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["Cache-Control"] == "no-store"
assert not re.search(r"https?://|\bsrc=|@import", page), "the page asks another server"
status, headers, text = get(address + "rows.json")
assert status == 200 and headers["Content-Type"].startswith("application/json"), headers
rows = json.loads(text)["rows"]
assert [(row["pid"], row["rank"], row["ranks"]) for row in rows] == [(ranks[0], 0, 2), (ranks[1], 1, 2)], rows
waiting, missing = rows
assert (waiting["operation"], waiting["state"], waiting["waits_for"]) == ("all_reduce #5", "under way", 1), waiting
assert waiting["seconds"] > 0.02 and missing["operation"] == "all_reduce #4" and "waits" not in missing, rows
for path in ("", "rows.json", "0" * 64 + "/", "0" * 64 + "/rows.json", address.split("/")[3]):
    assert get(f"http://127.0.0.1:{port}/{path}")[0] == 404, path

def talk(*parts):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as end:
        for part in parts:
            end.sendall(part)
        said = b""
        while chunk := end.recv(65536):
            said += chunk
        return said

assert talk(b"POST / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 "), "a POST"
assert talk(b"x" * 8192).startswith(b"HTTP/1.1 400 "), "an endless line"
path = address.split("/", 3)[3].encode()
assert talk(*(bytes([b]) for b in b"GET /" + path + b" HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 "), "byte by byte"
# Connections that say nothing, as browsers open them for later, do not keep others out.
idle = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(40)]
assert get(address + "rows.json")[0] == 200
assert idle[0].recv(1) == b"", "the oldest connection is still open"
for end in idle:
    end.close()
# It listens on loopback alone.
listening = [line.split()[1] for line in open("/proc/net/tcp") if line.split()[3] == "0A"]
assert f"0100007F:{port:04X}" in listening and f"00000000:{port:04X}" not in listening, listening
END
port=${address#http://127.0.0.1:}
expect 1 "$BUILD_DIR/tools/tutti-top" --web="${port%%/*}" "${ranks[0]}"
grep -q "^tutti-top: port ${port%%/*} of 127.0.0.1 cannot be listened on: Address already in use; --web alone takes a free one\.$" err || complain "$(cat err)"
# A process that is not there keeps nobody from looking at another one.
mkfifo said
timeout -k 5 60 "$BUILD_DIR/tools/tutti-top" --web -i 0.1 "${ranks[0]}" 2147483647 2>partial_err >said &
partial=$!
read -r -t 60 line <said && [[ $line = *http://* ]] || complain "no page of one of two processes: $(cat partial_err)"
end_ranks
wait "$web"
code=$?
[ $code = 0 ] || complain "exit code $code when the ranks have ended: $(cat web_err)"
wait $partial
code=$?
[ $code = 3 ] || complain "exit code $code when one of two processes never was: $(cat partial_err)"

for words in --web=0 --web=65536 --web=x --web=-1 '--web --once'; do
	expect 2 "$BUILD_DIR/tools/tutti-top" $words
	grep -q '^tutti-top --help explains the options\.$' err || complain "$words: $(cat err)"
done
expect 3 "$BUILD_DIR/tools/tutti-top" --web 2147483647
"$BUILD_DIR/tools/tutti-top" --web >/dev/full 2>err
[ $? = 1 ] || complain "an address that nobody sees: $(cat err)"
exit $failures
