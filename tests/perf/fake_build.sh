# fake_build.sh: sourced by tests of perf's scripts. Builds without Tutti, and launchers without MPI.

# fake_build FOLDER: tuttirun and some benchmark programs of Tutti and its peers, all of them fake_perf.
fake_build()
{
	local peer collective
	mkdir -p "$1/launch" "$1/perf"
	cp "$BUILD_DIR/tests/fake_perf" "$1/program"
	fake_launcher "$1/launch/tuttirun" tuttirun
	for peer in "" openmpi_ mpich_ gloo_; do
		for collective in all_reduce broadcast barrier; do
			ln "$1/program" "$1/perf/$peer${collective}_perf"
		done
	done
}

# fake_launcher PATH VERSION: prints VERSION when asked; else runs the program once, as rank 0 of them all.
fake_launcher()
{
	cat >"$1" <<-END
		#!/bin/bash
		[ "\$1" != --version ] || { printf '%s\n' "$2"; exit; }
		while [[ \$1 != */perf/* ]]; do shift; done
		exec "\$@"
	END
	chmod +x "$1"
}
