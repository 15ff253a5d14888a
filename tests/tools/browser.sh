# A browser without a window, for tests of pages. To be sourced behind scratch.sh; ends the test with 77 where there is none.
browser=$(command -v chromium-headless-shell || command -v chromium) || {
	echo "chromium is not installed"
	exit 77
}

# Nothing but this machine can be reached.
browser_command=("$browser" --headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars
	--disable-background-networking --disable-component-update --disable-sync --disable-extensions
	--user-data-dir="$scratch/profile" --host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1' --window-size=1200,1400)

# browse URL WORD...: with these options. What it says goes to ./console.
browse()
{
	local url=$1
	shift
	HOME=$scratch timeout -k 5 100 "${browser_command[@]}" --enable-logging=stderr --virtual-time-budget=5000 "$@" "$url" \
		2>console
}

# no_messages: the page wrote nothing to the console, neither errors nor warnings.
no_messages()
{
	! grep -E ':CONSOLE|Uncaught|Refused to' console || complain "the page's console has messages"
}

# is_picture FILE: a PNG of 1200 columns that is not blank.
is_picture()
{
	python3 - "$1" <<-'END' || complain "$1 is no picture of a page"
		import struct, sys
		data = open(sys.argv[1], "rb").read()
		assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (1200, 1400), data[:24]
		assert len(data) > 40000, f"{len(data)} bytes are a blank page"
	END
}
