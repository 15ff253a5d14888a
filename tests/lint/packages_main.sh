# Run by script/environments as root of a new root, which has the packages in /made: installs them and is their user.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends /made/*.deb gcc libc6-dev pkg-config man-db python3-numpy
cp /usr/share/doc/tutti/examples/tutorial/step2_all_reduce.c /tmp/user.c
cc /usr/share/doc/tutti/examples/tutorial/step3_ddp.c -o /tmp/trainer $(pkg-config --cflags --libs tutti-train) -lm
tuttirun -n 2 /tmp/trainer
cc /tmp/user.c -o /tmp/user $(pkg-config --cflags --libs tutti) -lm
tuttirun -n 2 /tmp/user
all_reduce_perf --ranks 2 -b 8 -e 8K
tutti-info
tuttirun -n 2 python3 -c 'import numpy, tutti
with tutti.init() as comm:
    x = numpy.ones(3)
    comm.all_reduce(x)
    assert x.tolist() == [2, 2, 2], x'
man tutti_all_reduce | grep -q 'MISMATCH\|every rank'
man tuttirun | grep -q max-restarts
apt-get remove -y -qq libtutti1
[ ! -e /usr/bin/tuttirun ]
echo "the packages were installed, used and removed"
