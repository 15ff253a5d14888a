#!/usr/bin/env bash
# What would break: a build on a machine that has the commands of an MPI and no headers, as with Debian's openmpi-bin alone.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
mkdir bin
for command in mpicc.openmpi mpirun.openmpi; do
	printf '#!/bin/sh\necho gcc -I/nowhere Open MPI\n' >bin/$command
	chmod +x bin/$command
done
PATH=$scratch/bin:$PATH expect 0 cmake -S "$SOURCE_DIR" -B build -DTUTTI_TESTS=OFF -DTUTTI_PEERS=ON -DTUTTI_CUDA=OFF
said "No Open MPI here" out
exit $failures
