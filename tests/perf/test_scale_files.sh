#!/usr/bin/env bash
# slow: 2 s
# no_asan: it times or compares programs that other tests run here, too
# What would break: half an hour of perf/scale that is lost with the terminal or on a full disk, and a table that replaces
# a better one. The points are a fake's.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
script="$SOURCE_DIR/perf/scale"
files="scale.csv scale.md"

# The fake answers at once; with more ranks than 8 it does not end, 5 fail, and 6 find nothing.
mkdir -p build/perf
cat >build/perf/scale_point <<'END'
#!/bin/bash
echo "$1 $2" >"$0.starts"
[ "$2" != 5 ] || { echo 'scale_point: rank 3: no memory.'; exit 1; }
[ "$2" != 6 ] || exit 0
[ "$2" -le 8 ] || exec sleep 600
echo "{\"ranks\": $2, \"kind\": \"$1\", \"init_ms\": 1, \"init_KiB\": 2, \"used_KiB\": 3, \"shared_KiB\": 4, \"all_reduce_us\": 5, \"barrier_us\": 6, \"init_cpu_ms\": 7, \"descriptors\": 8}"
END
chmod +x build/perf/scale_point

# scale CODE WORD...: with its output in ./out and ./err, which may be set to lead elsewhere.
scale()
{
	local code=$1 got
	shift
	timeout -k 5 100 "$script" --build build --rounds "${rounds:-2}" "$@" >"${out:-out}" 2>err
	got=$?
	[ "$got" = "$code" ] || complain "exit code $got instead of $code from scale $*: $(cat err)"
}

says()
{
	grep -qF -- "$1" "${2:-out}" || complain "'$1' is not in ${2:-out}: $(head -c 600 "${2:-out}")"
}

# whole FOLDER LINES: both files are there, and nothing else; so many lines are in the CSV.
whole()
{
	[ "$(find "$1" -mindepth 1 -printf '%f\n' | sort | xargs)" = "$files" ] || complain "in $1: $(ls -A "$1")"
	[ "$(wc -l <"$1/scale.csv")" = "$2" ] || complain "$1/scale.csv: $(cat "$1/scale.csv")"
}

once()
{
	[ "$(wc -l <err)" = 1 ] || complain "not said once: $(cat err)"
	says "$1" err
}

printf 'ELF\0tutti revision: 0123456789ab\0' >build/libtutti.so

# ---- standard output that is full or closed: the files are whole
out=/dev/full scale 4 --ranks 2,4 --out full
once 'scale: the standard output is gone: No space left on device.'
timeout -k 5 100 "$script" --build build --rounds 2 --ranks 2,4 --out closed >&- 2>err
[ $? = 4 ] || complain "closed"
once 'scale: the standard output is gone: it is closed.'
for folder in full closed; do
	whole $folder 9
	says 'Commit of Tutti: 0123456789ab.' $folder/scale.md
done
# Without files nothing is left to measure for.
rm build/perf/scale_point.starts
out=/dev/full scale 4 --ranks 2
once 'scale: the standard output is gone: No space left on device, and there is no --out: what is measured would be lost.'
[ ! -e build/perf/scale_point.starts ] || complain "measured for nobody"

# ---- a full disk cuts no file: both are new, or both as they were
cp -r full before
(
	ulimit -f 1
	rounds=20 scale 3 --ranks 2 --out full
	exit $failures
) || failures=1
once 'scale: the results could not be written to full: File too large (scale.csv); no file was changed.'
diff -r full before || complain "the older files have changed"

# ---- what fails or is interrupted keeps what it has; with nothing the older files stay
scale 3 --ranks 5 --out full
says 'scale: 5 processes: it ended with exit code 1.' err
says 'scale_point: rank 3: no memory.' err
says 'Nothing was measured: the files in full are older ones.'
diff -r full before || complain "a failure at once has replaced them"
scale 3 --ranks 2,5 --kinds threads --out part
whole part 2
says 'Not complete: 5 threads: it ended with exit code 1.' part/scale.md
scale 3 --ranks 6
says 'scale: 6 processes: it ended without a result in JSON.' err
# interrupted SIGNAL RANKS...: it ends by that signal, into the folder of its name, when 16 ranks hang.
interrupted()
{
	local pid
	rm -f build/perf/scale_point.starts
	cp -r before "$1"
	# A shell that runs something behind itself turns Ctrl-C off for it.
	python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execv(sys.argv[1], sys.argv[1:])' "$script" --build build --ranks "$2" --kinds threads --out "$1" >out 2>err &
	pid=$!
	until grep -q 'threads 16' build/perf/scale_point.starts 2>/dev/null; do
		kill -0 $pid 2>/dev/null || break
		read -rt 0.1 <> <(:)
	done
	kill "-$1" $pid
	wait $pid
	[ $? = 3 ] || complain "the exit code after $1"
	once 'scale: interrupted: what follows is what was measured until then.'
	pgrep -f "$scratch/build/perf" && complain "processes are left after $1"
}
interrupted HUP 2,16
whole HUP 2
says 'Not complete: it was interrupted.' HUP/scale.md
interrupted INT 16
says 'Nothing was measured: the files in INT are older ones.'
diff -r INT before || complain "the older files were replaced by none"
scale 2 --out ""
exit $failures
