#!/usr/bin/env bash
# Breaks when a kernel takes more of a GPU's multiprocessor than it was designed for: registers, stack, shared memory or
# spills differ from resources.txt, which the build's own report (kernels.resources) would print with --update.
set -euo pipefail
here=$SOURCE_DIR/tests/cuda/kernels
report=$BUILD_DIR/kernels.resources
[ -e "$report" ] || { echo "nvcc is not installed"; exit 77; }

# Kernels, from nvlink: what of a multiprocessor each takes. Functions, from ptxas: bytes that are spilled, if any.
# What ptxas calls a spill in a function that is compiled for itself is mostly the caller's registers.
measured()
{
	awk '/^sm_/ { architecture = $1 }
		/Function properties for .tutti_/ { gsub(/[^a-z_]*$|.*.tutti_/, ""); kernel = $0 }
		/: used [0-9]+ registers/ && kernel {
			registers = $0; sub(/.*used /, "", registers); sub(/ .*/, "", registers)
			stack = $0; sub(/ stack.*/, "", stack); sub(/.* /, "", stack)
			shared = $0; sub(/ bytes smem.*/, "", shared); sub(/.* /, "", shared)
			print architecture, kernel, registers, stack, shared
			kernel = ""
		}' "$report"
}

if [ "${1:-}" = --update ]; then
	{ sed -n '/^#/p' "$here/resources.txt"; measured | sort; } >"$here/resources.new"
	mv "$here/resources.new" "$here/resources.txt"
fi
diff <(sed '/^#/d' "$here/resources.txt") <(measured | sort) || { echo "differs from resources.txt"; exit 1; }

# A block of 512 threads fits: 64 Ki registers, given out in units of 8 a thread.
measured | awk '{ if (int(($3 + 7) / 8) * 8 * 512 > 65536) { print $2 " has too many registers: " $3; exit 1 } }'
