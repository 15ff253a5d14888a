#!/usr/bin/env bash
# slow: 6 s
# What would break: what tutti-info says of GPUs, of which map each other, and of what moves the device buffers of each
# pair of ranks; with the fake driver, and without one.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
info="timeout -k 5 60 $BUILD_DIR/tools/tutti-info"
run="timeout -k 5 100 $BUILD_DIR/launch/tuttirun"
unset WORLD_SIZE RANK TUTTI_TRANSPORTS TUTTI_WINDOW TUTTI_HOST_ID

said()
{
	grep -qE -- "$1" out || complain "no '$1' in: $(cat out)"
}

# is EXPRESSION: of what a --json wrote into ./out, as Python's j, with g the GPUs of its first machine.
is()
{
	command -v python3 >/dev/null || return 0
	grep -q '^{' out || { grep -q 'jansson was not installed' err || complain "no JSON: $(cat out err)"; return 0; }
	python3 - "$1" <<-'END' || complain "not so: $1 in: $(cat out)"
		import json, sys
		j = json.load(open("out"))
		h = j["hosts"][0]
		g = h["gpus"]
		sys.exit(not eval(sys.argv[1]))
	END
}
json=$($info --json >/dev/null 2>&1; echo $?) # 1: a build without jansson
driver=$BUILD_DIR/tests/cuda/driver

# ---- no driver: a file of its name that is none, and one that the settings leave alone
mkdir none
: >none/libcuda.so.1
expect 0 env LD_LIBRARY_PATH="$PWD/none" $info
said '^GPUs: none: no CUDA driver: .*libcuda\.so\.1: .*; this build has (no )?kernels'
expect "$json" env LD_LIBRARY_PATH="$PWD/none" $info --json
is 'g["missing"].startswith("no CUDA driver: ") and g["list"] == g["links"] == [] and g["driver_version"] == 0'
expect 0 env LD_LIBRARY_PATH="$driver" TUTTI_CUDA=0 $info
said '^GPUs: none: TUTTI_CUDA is 0; '
expect 0 env LD_LIBRARY_PATH="$PWD/none" $run -n 2 $info
! grep -qi 'device buffers' out || complain "device buffers without a GPU: $(cat out)"
! grep -q '^Adapters' out || complain "adapters without a GPU: $(cat out)"

# ---- one GPU, and three of which two reach each other
export LD_LIBRARY_PATH="$driver:$PWD/none"
expect 0 $info
said '^GPUs: CUDA driver 13\.0; this build has (no )?kernels'
said '^  0: Shared memory, GPU-66616b65-[0-9a-f-]*, PCI 0000:01:00\.0, 4096 MiB, compute capability 9\.0, 8 multiprocessors$'
said '^      dma-buf no, POSIX descriptors yes, fabric handles no, multicast no; to the host by PCIe$'
! grep -q 'Between GPUs' out || complain "links of one GPU: $(cat out)"
said '^  GPU 0: none: the driver gives no dma-bufs of CUDA device 0: it takes Linux 5\.12 and'
expect 0 env TUTTI_DMA_BUF=0 FAKE_CUDA_DMA_BUF=1 $info
said '^  GPU 0: none: TUTTI_DMA_BUF is 0$'
export FAKE_CUDA_DEVICES=3 FAKE_CUDA_PEERS=0-1
expect 0 $info
said "^  0-1: each can map the other's memory; performance rank 0, native atomics yes$"
said "^  1-2: neither can map the other's memory;"
expect "$json" $info --json
is 'g["missing"] is None and g["driver_version"] == 13000 and len(g["list"]) == 3 and len(g["links"]) == 6'
is '[(l["from"], l["to"]) for l in g["links"] if l["can_map"]] == [(0, 1), (1, 0)]'
is 'g["list"][1]["pci"] == "0000:02:00.0" and g["list"][1]["bytes"] == 4 << 30 and g["list"][0]["compute_capability"] == [9, 0]'
is 'len({r["uuid"] for r in g["list"]}) == 3 and g["list"][0]["posix_descriptors"] and not g["list"][0]["dma_buf"]'

# ---- jobs: ranks take the GPUs in turn
expect 0 $run -n 4 $info
said "^  device buffers by kernels: each can map the other's memory$"
said '^  device buffers by turns: both have the same GPU$'
expect "$json" $run -n 4 $info --json
is "{tuple(r): k['gpus'] for k in j['pairs'] for r in k['ranks']} == {(0, 3): 'both have the same GPU', \
	(0, 1): \"each can map the other's memory\", (1, 3): \"each can map the other's memory\", \
	(0, 2): \"they cannot map each other's memory\", (1, 2): \"they cannot map each other's memory\", \
	(2, 3): \"they cannot map each other's memory\"}"
is "all(k['device_buffers'] == ('kernels' if 'each can' in k['gpus'] else 'turns' if 'same' in k['gpus'] else 'engine') for k in j['pairs'])"
# The third does not reach the others: in a communicator of all ranks the engine serves all.
is "j['device_buffers'] == [{'host': j['hosts'][0]['host'], 'by': 'engine', 'no_multicast': 'there are no kernels of all ranks'}]"
is "all(k['long_messages'] == 'host memory' for k in j['pairs'])"
# shellcheck disable=SC2016 # each rank expands it
expect "$json" $run -n 2 sh -c 'TUTTI_HOST_ID=$RANK exec "$@"' - $info --json
is "j['pairs'][0]['gpus'] == 'they are on different machines: kernels in each, messages between'"
is "j['pairs'][0]['long_messages'] == 'host memory'"
# A rank without a driver.
# shellcheck disable=SC2016
expect "$json" $run -n 2 sh -c 'TUTTI_CUDA=$RANK exec "$@"' - $info --json
is "j['pairs'][0]['gpus'] == 'a rank has no GPU' and j['pairs'][0]['device_buffers'] == 'none'"
is "j['pairs'][0]['long_messages'] == 'none' and j['device_buffers'][0]['by'] == 'engine'"

# ---- what a communicator of all ranks does: stages, turns, multicast of three GPUs or more
export FAKE_CUDA_PEERS=all TUTTI_WINDOW_BYTES=1048576
expect 0 $run -n 3 $info
said '^Device buffers of a communicator of all ranks:$'
said "^  on .* by kernels; multicast \\(NVLS\\): no: a rank's GPU has no multicast, or is older than sm_90$"
said '^  long messages of device buffers in stages, from GPU to GPU$'
export FAKE_CUDA_MULTICAST=1
expect 0 $run -n 3 $info
said '^  on .* by kernels; multicast \(NVLS\): for buffers of tutti_mem_alloc$'
expect "$json" $run -n 3 $info --json
is "[(d['by'], d['no_multicast']) for d in j['device_buffers']] == [('kernels', None)]"
is "{k['long_messages'] for k in j['pairs']} == {'stages'}"
expect "$json" $run -n 2 $info --json
is "j['device_buffers'][0]['no_multicast'] == 'it is for three ranks or more'"
expect 0 $run -n 4 $info
said '^  on .* by turns; multicast \(NVLS\): no: two ranks share a GPU$'
said '^  long messages of device buffers in stages, from GPU to GPU$'
# A GPU of one multiprocessor has no room for kernels that wait.
expect 0 env FAKE_CUDA_SMS=1 $run -n 3 $info
said '^  on .* by turns; multicast \(NVLS\): no: its calls take turns$'
# Without kernels the engine has all of it.
expect "$json" env TUTTI_CUDA=1 $run -n 3 $info --json
is "j['device_buffers'][0]['by'] == 'engine' and {k['long_messages'] for k in j['pairs']} == {'host memory'}"

# ---- adapters: two, of which one registers dma-bufs. (What is preloaded would come before a sanitizer.)
adapters=$BUILD_DIR/tests/adapters_plugin.so
if [ -e "$BUILD_DIR/tests/fake_verbs/libibverbs.so.1" ] && ! grep -q '^CMAKE_C_FLAGS:.*-fsanitize' "$BUILD_DIR/CMakeCache.txt"; then
	export FAKE_CUDA_DMA_BUF=1 FAKE_CUDA_DMA_BUF_LACKS=1 LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$BUILD_DIR/tests/fake_verbs"
	expect 0 env LD_PRELOAD="$adapters" $info
	said '^  GPU 0: fake_0; not fake_1, whose driver registers no dma-buf: with it in use \(TUTTI_VERBS_DEVICES\) none does$'
	said '^  GPU 1: none: the driver gives no dma-bufs of CUDA device 1: '
	expect "$json" env LD_PRELOAD="$adapters" $info --json
	is "[p['dma_buf'] for p in h['rdma_ports']] == [True, False]"
	is "g['list'][2]['adapters'].startswith('fake_0; not fake_1, whose driver registers no dma-buf') and g['list'][2]['dma_buf']"
fi
exit $failures
